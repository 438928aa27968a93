"""Reads a page of ours back."""

import html.parser


class Reader(html.parser.HTMLParser):
    """Checks that elements nest, and collects ids, references and the cells of tables."""

    VOID = frozenset({"meta", "br", "link", "img"})

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.references, self.tags, self.rows = [], [], [], set(), []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open += [] if tag in self.VOID else [tag]
        self._attributes(attrs)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self._attributes(attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data

    def _attributes(self, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            elif name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                self.references.append(value)
            elif name != "content" and not name.startswith("xmlns"):
                assert "//" not in (value or ""), (name, value)
