"""What mkdocs.yml cannot say: pages outside docs/, notebooks, captions, tables, formulas.

Nothing here imports the library, so that the extra `docs` is all that a build of the site needs.
"""

import html
import pathlib
import posixpath
import re
import xml.etree.ElementTree as etree

import griffe
import markdown
import nbconvert
import nbformat
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).parents[1]
LONG = 45  # characters of a cell of a table that has the width of a phone to itself


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


class Shown(markdown.Extension, markdown.treeprocessors.Treeprocessor):
    """A picture that is a paragraph has its text as a caption; a cell knows the head above it."""

    def extendMarkdown(self, md):
        md.treeprocessors.register(self, "shown", 1)  # after the text in lines, before links

    def run(self, root):
        for paragraph in root.iter("p"):
            around = (paragraph.text or "") + "".join(child.tail or "" for child in paragraph)
            if [child.tag for child in paragraph] == ["img"] and not around.strip():
                paragraph.tag = "figure"
                caption = etree.SubElement(paragraph, "figcaption", {"aria-hidden": "true"})
                caption.text = paragraph[0].get("alt")
        for table in root.iter("table"):
            heads = ["".join(head.itertext()) for head in table.iter("th")]
            for row in table.iterfind("tbody/tr"):
                for head, cell in zip(heads, row):
                    cell.set("data-head", head)
                    if len("".join(cell.itertext())) > LONG:
                        cell.set("data-long", "")


def on_config(config):
    config.markdown_extensions.append(Shown())
    return config


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
        captions = iter(captions_of(notebook))
        export = nbconvert.MarkdownExporter().from_notebook_node
        text, parts = export(notebook, {"output_files_dir": pathlib.Path(path).stem})
        text = re.sub(r"!\[png\]", lambda _: f"![{next(captions)}]", text)
        text = text.replace("$$\n$$", "$$\n\n$$")
        yield Page.generated(config, path, content=text)
        for picture, content in parts["outputs"].items():
            yield File.generated(config, f"{posixpath.dirname(path)}/{picture}", content=content)
    else:
        yield File(path, *options)


def captions_of(notebook):
    """The caption of each picture of a notebook, which the metadata of its cell have."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                yield cell.metadata.caption


def on_page_markdown(markdown, page, **_):
    """Names of builders in the first column of their table are places that names link to."""
    if page.file.src_uri != "docs/api/builders.md":
        return markdown
    return re.sub(r"(?m)^\| `(\w+)`", r"| [](){#keras_vit.\1}<code>\1</code>", markdown)


def on_page_content(content, **_):
    """Formulas become MathML, which browsers show without a script; names link to the API.

    In a table, a long name may go on in another line.
    """
    content = re.sub(r'(?s)(class="arithmatex">)\\([(\[])(.*?)\\[)\]]', formula, content)
    name = r'(?<!">)<code>(keras_vit\.[\w.]+\w)(\(.*?\))?</code>'
    content = re.sub(
        name, r'<autoref identifier="\1" optional><code>\1\2</code></autoref>', content
    )
    return re.sub(
        r"(?s)<td.*?</td>", lambda cell: re.sub("<code>.*?</code>", broken, cell[0]), content
    )


def broken(code):
    return re.sub(r"(?<=\w)(?=[(\[=]|\.[a-z])|(?<=\w/)(?=\w)", "<wbr>", code[0])


def formula(found):
    return found[1] + convert(html.unescape(found[3]), display=("inline", "block")[found[2] == "["])
