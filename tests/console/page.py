"""An answer's HTML as a tree that tests can ask, and what holds for every page of the console."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

_VOID = frozenset({"meta", "link", "img", "input", "br", "hr", "meter-value", "path"})


class Node:
    """An element: its tag, its attributes, and what stands in it."""

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Node | str] = []

    def __getitem__(self, name: str) -> str:
        return self.attributes[name]

    @property
    def text(self) -> str:
        """Its text, with white space folded."""
        return " ".join("".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, str):
                yield child
            else:
                yield from child._texts()
                if child.tag in ("td", "th", "li", "p", "dd", "dt", "div", "br", "h1", "h2", "h3"):
                    yield " "

    def walk(self) -> Iterator[Node]:
        for child in self.children:
            if isinstance(child, Node):
                yield child
                yield from child.walk()

    def all(self, wanted: str) -> list[Node]:
        """Elements by a simple selector: `tag`, `.class`, `#id`, `[name=value]`, and these one after the other."""
        return [node for node in self.walk() if _is(node, wanted)]

    def one(self, wanted: str, text: str = "") -> Node:
        found = [node for node in self.all(wanted) if text in node.text]
        assert len(found) == 1, f"{len(found)} elements are {wanted} with {text!r}"
        return found[0]


def _is(node: Node, wanted: str) -> bool:
    for kind, name, value in re.findall(r"([.#]?)([\w-]+)|\[([^\]]+)\]", wanted):
        if value:
            key, _, expected = value.partition("=")
            if node.attributes.get(key) is None or (expected and node.attributes[key] != expected):
                return False
        elif kind == ".":
            if name not in node.attributes.get("class", "").split():
                return False
        elif (node.attributes.get("id") if kind == "#" else node.tag) != name:
            return False
    return True


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("", {})
        self.open = [self.root]
        self.unbalanced: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in _VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Node(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if self.open[-1].tag == tag:
            self.open.pop()
        else:
            self.unbalanced.append(f"</{tag}> in <{self.open[-1].tag}>")

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(html: str) -> Node:
    """The tree of a page that is written as it should be (what a browser would mend is a failure here)."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    assert builder.unbalanced == [], builder.unbalanced
    assert len(builder.open) == 1, f"not closed: {[node.tag for node in builder.open[1:]]}"
    check(builder.root)
    return builder.root


def check(page: Node) -> None:
    """What holds for every page: nothing inline, one heading, names for fields, tokens in forms, no id twice."""
    for node in page.walk():
        inline = [name for name in node.attributes if name.startswith("on") or name == "style"]
        assert not inline, f"<{node.tag} {inline}>"
        assert not node.attributes.get("href", "").lower().startswith(("javascript:", "http:", "https:", "//")), node
    scripts = [{"src": f"/static/{name}.js", "defer": ""} for name in ("live", "look", "talk")]
    assert [node.attributes for node in page.all("script")] in (scripts[:2], scripts)
    assert page.all("style") == []
    assert len(page.all("h1")) == 1
    ids = [node["id"] for node in page.walk() if "id" in node.attributes]
    assert len(ids) == len(set(ids)), "an id stands twice"
    labelled = {node["for"] for node in page.all("label") if "for" in node.attributes}
    wrapped = {id(field) for label in page.all("label") for field in label.walk()}
    for field in [*page.all("input"), *page.all("textarea"), *page.all("select")]:
        if field.attributes.get("type") != "hidden":
            assert field.attributes.get("id") in labelled or id(field) in wrapped, field.attributes
    for form in page.all("form"):
        tokens = [field for field in form.all("input") if field.attributes.get("name") == "csrf"]
        posts = form.attributes.get("method") == "post" and form["action"] != "/login"
        assert len(tokens) == posts, form.attributes
    for table in page.all("table"):
        assert all("scope" in head.attributes for head in table.all("th"))
