"""Draws the dataflow of each system, for docs/systems: python docs/figures/flows.py

A figure is a table of boxes on a grid and a list of arrows, so that all look alike; axes stand in brackets as in the
names of arrays in the code (`chars_SUC`: [S, U, C]). Open it to change a figure or to add one. It needs nothing but
Python, and writes SVG files beside this script, the same bytes each time. They bring a light ground, for dark pages.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
INK, PAPER, SOFT, LINE = "#24292f", "#ffffff", "#57606a", "#8c959f"
FILLS = {  # kind of box: ground, edge
    "array": ("#f6f8fa", "#8c959f"),  # what is read, handed on or written
    "learned": ("#e3f3ed", "#0b6e4f"),  # parameters of the system
    "given": ("#fbe9dd", "#b7591b"),  # parameters of the BERT or GPT-2 that it starts from
    "loss": ("#fff8d6", "#9a6700"),
}
LEGEND = {
    "array": "array, its axes",
    "learned": "learned by the system",
    "given": "of the BERT beneath",
    "loss": "compared in training",
}
WIDTH, HEIGHT, STEP_X, STEP_Y, MARGIN = 128, 58, 152, 88, 16


@dataclasses.dataclass(frozen=True)
class Box:
    """A box at a place of the grid; the last line of its text is its axes if it begins with a bracket.

    Attributes:
      rows: how many rows it spans.
    """

    column: float
    row: float
    kind: str
    text: tuple[str, ...]
    rows: int = 1

    @property
    def left(self) -> float:
        """x of the left edge."""
        return MARGIN + self.column * STEP_X

    @property
    def top(self) -> float:
        """y of the upper edge."""
        return MARGIN + self.row * STEP_Y

    @property
    def height(self) -> float:
        """Height, over all rows that it spans."""
        return HEIGHT + (self.rows - 1) * STEP_Y


@dataclasses.dataclass(frozen=True)
class Flow:
    """A figure: boxes by name, arrows "a b" from one to another, and notes (column, row, text) in small letters.

    Attributes:
      frame: the corners (column, row) of a dashed frame around boxes, and what is written on it.
    """

    title: str
    boxes: dict[str, Box]
    arrows: tuple[str, ...]
    notes: tuple[tuple[float, float, str], ...] = ()
    frame: tuple[float, float, float, float, str] | None = None


def array(column: float, row: float, *text: str) -> Box:
    """A box with an array."""
    return Box(column, row, "array", text)


def learned(column: float, row: float, *text: str, rows: int = 1) -> Box:
    """A box with parameters of the system."""
    return Box(column, row, "learned", text, rows)


def given(column: float, row: float, *text: str) -> Box:
    """A box with parameters of the transformer that the system starts from."""
    return Box(column, row, "given", text)


def loss(column: float, row: float, *text: str) -> Box:
    """A box with what is compared in training."""
    return Box(column, row, "loss", text)


FUSION = "fusion", "", "convolution", "over neighbours", "of [t ; u], tanh;", "GELU and norm", "for each channel"

FLOWS = {
    "hlm": Flow(
        "HLM: characters to words to context",
        {
            "text": array(0, 0, "text", "I saw teh cat, teh"),
            "chars": array(1, 0, "distinct words", "chars_SUC", "[S, U, C]"),
            "intra": learned(2, 0, "intra-word", "encoder", "4 layers"),
            "vectors": array(3, 0, "word vectors r", "[S, U, D]"),
            "index": array(0, 1, "who stands where", "index_SBW", "[S, B, W]"),
            "gather": array(1, 1, "look up", "words_NWD", "[N, W, D]"),
            "inter": learned(2, 1, "inter-word", "encoder", "12 layers"),
            "context": array(3, 1, "context w", "context_NWD", "[N, W, D]"),
            "task": learned(4, 1, "head of a task", "over [r ; w]"),
            "masked": array(0, 2, "masked words", "whole_SPC", "[S, P, C]"),
            "states": array(1, 2, "their characters", "states h", "[S, P, C, D]"),
            "join": array(2, 2, "side by side", "[w ; h1 … hC]", "[S, M, C, D]"),
            "head": learned(3, 2, "prediction head", "1 layer, softmax"),
            "logits": loss(4, 2, "hidden characters", "[S, M, C, V]"),
        },
        (
            "text chars", "chars intra", "intra vectors", "text index", "index gather", "vectors gather",
            "gather inter", "inter context", "context task", "masked states", "states join", "context join",
            "join head", "head logits",
        ),
        ((1, 2.57, "by the same intra-word encoder"),),
    ),
    "charbert": Flow(
        "CharBERT: two channels that meet after every layer",
        {
            "ids": array(0, 0, "subwords", "ids_BL", "[B, L]"),
            "embed": given(1, 0, "BERT's", "embeddings"),
            "layer": given(2.35, 0, "layer n", "of BERT"),
            "tokens": array(4.7, 0, "token channel", "tokens_BLD", "[B, L, D]"),
            "mlm": loss(4.7, 1, "masked subwords", "[S, M, V]"),
            "chars": array(0, 2, "all characters", "chars_BN", "[B, N]"),
            "gru": learned(1, 2, "GRU, both ways;", "states at first and", "last character"),
            "same": given(2.35, 2, "layer n", "(the same)"),
            "fusion": Box(3.5, 0, "learned", FUSION, 3),
            "nlm": loss(4.7, 3, "words that were", "misspelled", "[S, P, terms]"),
            "charout": array(4.7, 2, "char channel", "chars_BLD", "[B, L, D]"),
        },
        (
            "ids embed", "embed layer", "layer fusion", "fusion tokens", "tokens mlm", "chars gru", "gru same",
            "same fusion", "fusion charout", "charout nlm",
        ),
        ((1.98, 0.02, "x"), (1.98, 2.02, "h"), (3.29, 0.02, "t"), (3.29, 2.02, "u")),
        (2.22, -0.08, 4.42, 2.75, "12 times: x, h are the fused channels of the layer before"),
    ),
    "characterbert": Flow(
        "CharacterBERT: words from convolutions over their bytes",
        {
            "text": array(0, 0, "text", "I saw teh cat, teh"),
            "chars": array(1, 0, "bytes of distinct", "words, chars_SUC", "[S, U, C]"),
            "cnn": learned(2, 0, "filters of width 1–7,", "most over places", "[U, 2048]"),
            "highway": learned(3, 0, "2 highways,", "projection"),
            "vectors": array(4, 0, "word vectors", "[S, U, D]"),
            "index": array(0, 1, "who stands where", "index_SBL", "[S, B, L]"),
            "sum": array(1, 1, "look up; + position", "+ segment", "[N, L, D]"),
            "bert": learned(2, 1, "layers of a BERT", "12, from scratch"),
            "states": array(3, 1, "context", "states_BLD", "[N, L, D]"),
            "head": loss(4, 1, "hidden words, of", "100,000 frequent", "[N, M, V]"),
        },
        (
            "text chars", "chars cnn", "cnn highway", "highway vectors", "text index", "index sum", "vectors sum",
            "sum bert", "bert states", "states head",
        ),
    ),
    "char2subword": Flow(
        "Char2Subword: a module in place of a table",
        {
            "chars": array(0, 0, "a spelling", "chars_UC", "[U, C]"),
            "embed": learned(1, 0, "character table,", "sinusoids", "[U, C, D]"),
            "layers": learned(2, 0, "Transformer", "6 layers"),
            "out": learned(3, 0, "projection, most", "over C, norm"),
            "vectors": array(4, 0, "vectors ê", "[U, E]"),
            "table": given(3, 1, "BERT's table E,", "fixed", "[V, E]"),
            "imitate": loss(4, 1, "like its row: cosine,", "L2, neighbours,", "cross-entropy"),
            "ids": array(0, 2, "each position: row,", "or spelled (−1)", "[S, B, L]"),
            "mix": array(1, 2, "rows or vectors ê", "[N, L, D]"),
            "bert": given(2, 2, "BERT's layers,", "unchanged"),
            "states": array(3, 2, "context", "[N, L, D]"),
            "mlm": loss(4, 2, "hidden subwords", "(second stage)"),
        },
        (
            "chars embed", "embed layers", "layers out", "out vectors", "vectors imitate", "table imitate",
            "ids mix", "mix bert", "bert states", "states mlm",
        ),
        ((1, 1.72, "from the module above, or the table"),),
    ),
    "xrayemb": Flow(
        "XRayEmb: an encoder and a generator around a language model",
        {
            "text": array(0, 0, "text; the policy", "selects words"),
            "chars": array(1, 0, "their characters", "chars_SUC", "[S, U, C]"),
            "enc": learned(2, 0, "XR-Enc", "filters of width 2–4,", "most, projection"),
            "vectors": array(3, 0, "word vectors", "[S, U, D]"),
            "embedding": loss(4, 0, "like the maximum of", "its subwords' rows"),
            "ids": array(0, 1, "the other subwords", "ids_SBL", "[S, B, L]"),
            "mix": array(1, 1, "rows or vectors", "[N, L, D]"),
            "lm": given(2, 1, "a BERT", "or GPT-2"),
            "states": array(3, 1, "context", "[N, L, D]"),
            "language": loss(4, 1, "masked or next", "subword"),
            "dec": learned(3, 2, "XR-Dec", "2 LSTM layers"),
            "generation": loss(4, 2, "characters of the", "word here"),
            "cycles": loss(0.5, 2, "cycles: word → XR-Enc → XR-Dec → word", "point → XR-Dec → XR-Enc → point"),
        },
        (
            "text chars", "chars enc", "enc vectors", "vectors embedding", "text ids", "ids mix", "vectors mix",
            "mix lm", "lm states", "states language", "states dec", "dec generation",
        ),
    ),
}  # fmt: skip


def line(points: list[tuple[float, float]]) -> str:
    """Returns an arrow through points."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="1.4" marker-end="url(#head)"/>'


def arrow(start: Box, end: Box) -> str:
    """Returns the arrow between two boxes: sideways in a row, else down, between the rows."""
    meet = max(start.top, end.top), min(start.top + start.height, end.top + end.height)
    if meet[0] < meet[1]:  # side by side: at the middle of the smaller one
        y = (meet[0] + meet[1]) / 2
        return line([(start.left + WIDTH, y), (end.left - 2, y)])
    x, target = start.left + WIDTH / 2, end.left + WIDTH / 2
    bottom, between = start.top + start.height, end.top - 14
    if abs(x - target) < 1:
        return line([(x, bottom), (x, end.top - 2)])
    return line([(x, bottom), (x, between), (target, between), (target, end.top - 2)])


def words(x: float, y: float, text: str, size: float, color: str = INK, style: str = "") -> str:
    """Returns a text centred at a point."""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{color}" {style}>{escape(text)}</text>'


def drawn(box: Box, wide: float = WIDTH) -> list[str]:
    """Returns a box with its text."""
    ground, edge = FILLS[box.kind]
    shape = f'<rect x="{box.left:g}" y="{box.top:g}" width="{wide:g}" height="{box.height:g}" rx="6"'
    found = [f'{shape} fill="{ground}" stroke="{edge}" stroke-width="1.4"/>']
    first = box.top + box.height / 2 - 7.5 * (len(box.text) - 1) + 4
    for n, text in enumerate(box.text):
        axes = text.startswith("[") and n == len(box.text) - 1
        style = 'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace"' if axes or "_" in text else ""
        found.append(words(box.left + wide / 2, first + 15 * n, text, 10.5 if style else 11.5, INK, style))
    return found


def svg(flow: Flow) -> str:
    """Returns a figure."""
    right = max(box.left for box in flow.boxes.values()) + WIDTH + MARGIN
    low = max(box.top + box.height for box in flow.boxes.values()) + 20
    kinds = [kind for kind in FILLS if any(box.kind == kind for box in flow.boxes.values())]
    head = '<path d="M0,0 L8,3.5 L0,7 z"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right:g} {low + 40:g}" role="img" '
        'font-family="DejaVu Sans, Verdana, Arial, sans-serif" text-anchor="middle">',
        f"<title>{escape(flow.title)}</title>",
        f'<defs><marker id="head" markerWidth="9" markerHeight="7" refX="7" refY="3.5" orient="auto">{head} '
        f'fill="{LINE}"/></marker></defs>',
        f'<rect width="{right:g}" height="{low + 40:g}" rx="10" fill="{PAPER}"/>',
    ]
    if flow.frame:
        left, top, end, bottom, text = flow.frame
        x, y = MARGIN + left * STEP_X, MARGIN + top * STEP_Y
        wide, high = (end - left) * STEP_X, (bottom - top) * STEP_Y
        shape = f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" rx="8" fill="none"'
        parts.append(f'{shape} stroke="{LINE}" stroke-dasharray="5 4"/>')
        parts.append(words(x + wide / 2, y + high + 15, text, 10.5, SOFT))
    parts += [arrow(*(flow.boxes[name] for name in pair.split())) for pair in flow.arrows]
    for name, box in flow.boxes.items():
        parts += drawn(box, 2.2 * STEP_X if name == "cycles" else WIDTH)
    parts += [
        words(MARGIN + column * STEP_X + (WIDTH / 2 if text[1:] else 0), MARGIN + row * STEP_Y + 20, text, 10.5, SOFT)
        for column, row, text in flow.notes
    ]
    for n, kind in enumerate(kinds):
        x = MARGIN + n * 172
        ground, edge = FILLS[kind]
        parts.append(f'<rect x="{x}" y="{low + 12:g}" width="14" height="14" rx="3" fill="{ground}" stroke="{edge}"/>')
        parts.append(words(x + 20, low + 23, LEGEND[kind], 10.5, SOFT, 'text-anchor="start"'))
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    for name, flow in FLOWS.items():
        (HERE / f"flow-{name}.svg").write_text(svg(flow), encoding="utf-8")
