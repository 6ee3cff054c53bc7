"""What mkdocs.yml cannot say: pages outside docs/, notebooks, the table of builders, formulas."""

import html
import inspect
import os
import pathlib
import posixpath
import re

import griffe
import nbconvert
import nbformat
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).parents[1]


class Names(griffe.Extension):
    """Corrects what griffe, which executes nothing, takes the names of the package for."""

    def on_instance(self, *, obj, **_):
        """In "width, depth: ..." the second name is no type; griffe splits at plain spaces."""
        if obj.docstring:
            names, text = r"(?m)^ *[\w*]+(, [\w*]+)+:", obj.docstring.value
            obj.docstring.value = re.sub(names, lambda m: m[0].replace(", ", ",\u2009"), text)

    def on_attribute_instance(self, *, attr, **_):
        """The fields of a variant show their defaults, not the `choice(...)` around them."""
        if isinstance(attr.value, griffe.ExprCall) and str(attr.value.function) == "choice":
            attr.value = attr.value.arguments[0]

    def on_package(self, *, pkg, loader, **_):
        """`keras_vit.data.load` is the function, not the file that it is in."""
        loader.resolve_aliases()
        for module in (*pkg.modules.values(), pkg):
            for name in set(module.exports or ()) & module.members.keys():
                thing = module[name].final_target if module[name].is_alias else module[name]
                if thing.is_module and name in thing.members:
                    module.members[name] = griffe.Alias(name, thing[name], parent=module)


class Page(File):
    """A page whose source is not Markdown in the repository."""

    def is_documentation_page(self):
        return True


def on_files(files, config):
    """Names files by their paths in the repository, so that links work there and here.

    Whatever a page links to in the repository becomes a page or a file of the site.
    """
    options = (str(ROOT), config.site_dir, config.use_directory_urls)
    found = Files([])
    for file in files:
        if file.src_dir == config.docs_dir:  # not of the theme
            file = File(f"docs/{file.src_uri}", *options, dest_uri=file.dest_uri)
        found.append(file)
    found.append(File("README.md", *options, dest_uri="readme.html"))  # index.html is another's
    pages = list(found.documentation_pages())
    for page in pages:  # grows
        for link in re.findall(r'(?:\]\(|src=")(?!\w+:)([^)"#\s]+)', page.content_string):
            path = posixpath.normpath(f"{posixpath.dirname(page.src_uri) or '.'}/{link}")
            if found.get_file_from_path(path) is None and (ROOT / path).is_file():
                for file in shown(path, config, options):
                    found.append(file)
                    pages += [file] if file.is_documentation_page() else []
    return found


def shown(path, config, options):
    """A file of the repository as one of the site, with the pictures of a notebook."""
    if path.endswith(".py"):
        text = f"# {path}\n\n~~~~~~python\n{(ROOT / path).read_text('utf-8')}\n~~~~~~\n"
        text = f"---\nsearch: {{exclude: true}}\n---\n{text}"
        file = Page.generated(config, path, content=text)
        file.dest_uri = f"sources/{file.dest_uri}"  # a page may have its name
        yield file
    elif path.endswith(".ipynb"):
        notebook = nbformat.read(ROOT / path, as_version=4)
        notebook.metadata.language_info = {"name": "python"}  # to be highlighted
        export = nbconvert.MarkdownExporter().from_notebook_node
        text, parts = export(notebook, {"output_files_dir": pathlib.Path(path).stem})
        text = text.replace("![png]", "![Figure]").replace("$$\n$$", "$$\n\n$$")
        yield Page.generated(config, path, content=text)
        for picture, content in parts["outputs"].items():
            yield File.generated(config, f"{posixpath.dirname(path)}/{picture}", content=content)
    else:
        yield File(path, *options)


def on_page_markdown(markdown, **_):
    """The table of the builders, where a page asks for it."""
    place = "<!-- the table of the builders -->"
    if place not in markdown:
        return markdown
    os.environ.setdefault("KERAS_BACKEND", "numpy")  # it is always there; nothing is computed
    import keras_vit

    table = "| builder | model | blocks | width | heads | MLP | patch |\n" + 7 * "|---" + "|"
    for name in keras_vit.builders.__all__[1:]:  # the first is `build`, of any variant
        build = getattr(keras_vit, name)
        row = {p.name: p.default for p in inspect.signature(build).parameters.values()}
        title = build.__doc__.partition("\n")[0].rpartition(":")[0]
        cells = [f"[](){{#keras_vit.{name}}}<code>{name}</code>", title]
        cells += [row.get("depth") or sum(row["blocks"]), f"{row['width']:g}"]
        cells += [row.get("num_heads", ""), row.get("mlp_dim", ""), *row.get("patch_size", "")[:1]]
        table += "\n| " + " | ".join(map(str, cells)) + " |"
    return markdown.replace(place, table)


def on_page_content(content, **_):
    """Formulas become MathML, which browsers show without a script; names link to the API."""
    content = re.sub(r'(?s)(class="arithmatex">)\\([(\[])(.*?)\\[)\]]', formula, content)
    name = r'(?<!">)<code>(keras_vit\.[\w.]+\w)(\(.*?\))?</code>'
    return re.sub(name, r'<autoref identifier="\1" optional><code>\1\2</code></autoref>', content)


def formula(found):
    return found[1] + convert(html.unescape(found[3]), display=("inline", "block")[found[2] == "["])
