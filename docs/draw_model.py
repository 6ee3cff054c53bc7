"""Draws docs/images/model.svg, the picture of the model: `python docs/draw_model.py`.

The names in it are those of the layers, the equations those of the paper. Colours follow the light
or dark scheme of the reader.
"""

import base64
import io
import pathlib

from PIL import Image
from sklearn.datasets import load_sample_image

STYLE = """
svg { font: 13px system-ui, sans-serif; }
.page { fill: #ffffff; } .text { fill: #1b1f27; } .faint { fill: #5b6472; font-size: 11px; }
.line { stroke: #5b6472; fill: none; stroke-width: 1.4; } .head { fill: #5b6472; }
.box { stroke-width: 1.2; rx: 5; } .frame { fill: #f3f4f8; stroke: #c3c8d4; }
.embed { fill: #e3d7f5; stroke: #8a6bbd; } .token { fill: #f7d9e3; stroke: #c0688b; }
.norm { fill: #fdf0c4; stroke: #b99a35; } .attend { fill: #d6ecd2; stroke: #5f9a56; }
.mlp { fill: #cfe6f5; stroke: #4c8bb0; } .out { fill: #fbdcc4; stroke: #c07c46; }
.eq { font: italic 12px Georgia, serif; }
@media (prefers-color-scheme: dark) {
  .page { fill: #14161c; } .text { fill: #e9ebf1; } .faint { fill: #a0a8b6; }
  .line { stroke: #a0a8b6; } .head { fill: #a0a8b6; } .frame { fill: #1d2029; stroke: #434a5a; }
  .embed { fill: #4b3a6b; } .token { fill: #6b3348; } .norm { fill: #5b4d1c; }
  .attend { fill: #2c5227; } .mlp { fill: #23475f; } .out { fill: #673f1f; }
}
"""
SIDE, COUNT = 108, 3  # of the photograph, and patches along a side
TOKENS = COUNT * COUNT + 1


def box(x, y, width, height, style, label=""):
    middle = f'x="{x + width / 2}" y="{y + height / 2 + 4.5}" text-anchor="middle"'
    return (
        f'<rect class="box {style}" x="{x}" y="{y}" width="{width}" height="{height}"/>'
        f'<text class="text" {middle}>{label}</text>'
    )


def text(x, y, words, style="text", anchor="start"):
    return f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>'


def arrow(*points, head=True):
    path = " ".join(f"{x},{y}" for x, y in points)
    end = ' marker-end="url(#head)"' if head else ""
    return f'<polyline class="line" points="{path}"{end}/>'


def photograph():
    """A flower of scikit-learn's, as a JPEG in the file itself."""
    whole = Image.fromarray(load_sample_image("flower.jpg")).crop((150, 40, 530, 420))
    whole.resize((2 * SIDE, 2 * SIDE)).save(buffer := io.BytesIO(), "JPEG", quality=75)
    data = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<image id="photo" width="{SIDE}" height="{SIDE}" href="data:image/jpeg;base64,{data}"/>'
    )


def patches(x, y, gap):
    """The photograph, cut: each patch a window on the same picture."""
    side = SIDE // COUNT
    for i in range(COUNT * COUNT):
        row, column = divmod(i, COUNT)
        yield (
            f'<svg x="{x + i * (side + gap)}" y="{y}" width="{side}" height="{side}" '
            f'viewBox="{column * side} {row * side} {side} {side}"><use href="#photo"/></svg>'
        )


def embedding():
    """Patches and Eq. 1, from the bottom to the tokens."""
    side, gap, left = SIDE // COUNT, 12, 196
    pitch = side + gap
    yield '<use href="#photo" x="24" y="318"/>'
    for i in range(1, COUNT):
        yield arrow((24 + i * side, 318), (24 + i * side, 426), head=False)
        yield arrow((24, 318 + i * side), (132, 318 + i * side), head=False)
    yield text(78, 444, "an image", "faint", "middle")
    yield arrow((140, 372), (left - 12, 372))
    yield from patches(left, 354, gap)
    yield text(left, 409, "patches: N = HW / P²", "faint")
    width = COUNT * COUNT * pitch - gap
    for i in range(COUNT * COUNT):
        middle = left + i * pitch + side / 2
        yield arrow((middle, 352), (middle, 330))
        yield arrow((middle, 296), (middle, 268))
    yield box(left, 298, width, 30, "embed", "patch_encoder: the same linear map E for every patch")
    for i in range(TOKENS):
        x = left + (i - 1) * pitch
        yield box(x, 236, side, 30, "token", "class" if i == 0 else f"x{chr(8320 + i)}E")
        position = f"+ E<tspan font-size='8' dy='2'>pos {i}</tspan>"
        yield text(x + side / 2, 228, position, "faint", "middle")
        yield arrow((x + side / 2, 214), (x + side / 2, 186))
    yield text(24, 256, "Eq. 1", "text eq")
    blocks = "block_0, block_1, ...: L blocks, one after the other"
    yield box(left - pitch, 152, TOKENS * pitch - gap, 32, "frame", blocks)
    token = left - pitch + side / 2
    yield arrow((token, 150), (token, 124))
    yield box(left - pitch - 10, 94, 76, 28, "norm", "norm")
    yield arrow((token, 92), (token, 70))
    yield box(left - pitch - 10, 40, 76, 28, "out", "head")
    yield arrow((left - pitch + 68, 54), (left + 96, 54))
    yield text(left + 104, 58, "logits, one for each class")
    yield text(left + 104, 112, "y = LN(z), read at the class token alone", "faint")
    yield text(24, 112, "Eq. 4", "text eq")


def block():
    """One block, Eq. 2 and 3, from the bottom to the top."""
    x, width, centre = 716, 150, 791
    yield '<rect class="box frame" x="676" y="40" width="230" height="386"/>'
    yield text(688, 60, "block_i")
    yield arrow((centre, 444), (centre, 390))
    for y, equation, norm, layer, style in (
        (390, "Eq. 2", "norm_1", "attention", "attend"),
        (222, "Eq. 3", "norm_2", "mlp", "mlp"),
    ):
        yield box(x, y - 30, width, 28, "norm", norm)
        yield arrow((centre, y - 30), (centre, y - 48))
        yield box(x, y - 80, width, 30, style, layer)
        yield arrow((centre, y - 80), (centre, y - 98))
        yield f'<circle class="line" cx="{centre}" cy="{y - 108}" r="9"/>'
        yield arrow((centre - 9, y - 108), (centre + 9, y - 108), head=False)
        yield arrow((centre, y - 117), (centre, y - 99), head=False)
        yield arrow((centre, y + 14), (890, y + 14), (890, y - 108), (centre + 11, y - 108))
        yield arrow((centre, y - 117), (centre, y - 168 if y > 300 else 26))
        yield text(688, y - 104, equation, "text eq")
    yield text(662, 420, "Eq. 2: z' = MSA(LN(z)) + z", "text eq", "end")
    yield text(662, 442, "Eq. 3: z'' = MLP(LN(z')) + z'", "text eq", "end")
    yield arrow((618, 168), (676, 168), head=False)


def main():
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path class="head" d="M0 0 8 4 0 8z"/></marker>'
    )
    parts = [f"<style>{STYLE}</style><defs>{head}{photograph()}</defs>"]
    parts += ['<rect class="page" width="930" height="460" rx="8"/>', *embedding(), *block()]
    title = "<title>The Vision Transformer: patches, embedding, blocks and head</title>"
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 930 460">{title}\n'
    path = pathlib.Path(__file__).parent / "images" / "model.svg"
    path.write_text(svg + "\n".join(parts) + "\n</svg>\n", "utf-8")


if __name__ == "__main__":
    main()
