"""Serves an exported classifier over HTTP, with onnxruntime and Pillow alone.

    keras-vit export MODEL model.onnx --preprocess
    python tutorials/serve.py model.onnx --port 8000
    curl --data-binary @cat.jpg http://localhost:8000

The answer is JSON, {"predictions": [{"name": ..., "probability": ...}, ...]}, the most probable
class first, or {"error": ...} with status 400 for what is no image.
"""

import argparse
import http.server
import io
import json

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

LARGEST_BODY = 20_000_000  # bytes; Pillow itself refuses images of too many pixels


class Classifier:
    """The model of a file that `keras_vit.export(..., preprocess=True)` wrote."""

    def __init__(self, path, top=5):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.facts, self.top = self.session.get_modelmeta().custom_metadata_map, top
        if self.facts.get("input") != "uint8 pixels":
            raise SystemExit(f"{path} takes no pixels: export it with preprocess=True.")
        self.channels = self.session.get_inputs()[0].shape[3]
        self.names = json.loads(self.facts.get("class_names", "null"))

    def pixels(self, body):
        """The bytes of an image file -> uint8 of the model's size, resized by Pillow."""
        how, (height, width) = (json.loads(self.facts[k]) for k in ("preprocessing", "image_size"))
        with Image.open(io.BytesIO(body)) as file:
            image = ImageOps.exif_transpose(file).convert("L" if self.channels == 1 else "RGB")
        method = getattr(Image.Resampling, how["interpolation"].upper(), Image.Resampling.BOX)
        margin = (1 - how["crop_fraction"]) / 2
        if how["resize"] == "squash":  # whatever the sides: the centre, without the margin
            window = [margin * s for s in image.size] + [(1 - margin) * s for s in image.size]
            image = image.resize((width, height), method, box=window)
        else:
            image = ImageOps.fit(image, (width, height), method, bleed=margin)
        return np.asarray(image, np.uint8).reshape(1, height, width, self.channels)

    def __call__(self, body):
        """The bytes of an image file -> the most probable classes."""
        (probabilities,) = self.session.run(None, {"images": self.pixels(body)})[0]
        best = np.argsort(-probabilities)[: self.top].tolist()
        names = self.names or list(map(str, range(len(probabilities))))
        return [{"name": names[i], "probability": float(probabilities[i])} for i in best]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 < length <= LARGEST_BODY:
            self.close_connection = True  # what was not read would be taken for the next request
            return self.answer(413 if length else 411, error=f"1 to {LARGEST_BODY} bytes, please")
        try:
            self.answer(200, predictions=self.server.classifier(self.rfile.read(length)))
        # Of errors Pillow's decoders know no common type; those of damaged files are many.
        except Exception as error:
            self.answer(400, error=f"no image that can be read: {error}")

    def answer(self, status, **content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(path, port=8000, top=5):
    """The server, for `serve_forever()`; port 0 takes a free one, `server_port` tells it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.classifier = Classifier(path, top)
    return server


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="an ONNX file, exported with preprocess=True")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--top", type=int, default=5, help="classes to tell (default: 5)")
    args = parser.parse_args()
    with serve(args.model, args.port, args.top) as server:
        print(f"http://localhost:{server.server_port}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
