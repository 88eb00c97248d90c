"""One drawing of a curve: its cost and its delay side by side, both axes logarithmic, readable in light and in dark."""

import math
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 300, 64, 14, 58, 48
STYLE = """\
svg { --paper: #ffffff; --ink: #16191d; --soft: #545b66; --rule: #d9dde3;
  --s0: #0072b2; --s1: #d55e00; --s2: #00795a; --s3: #b0458c; --s4: #8a6100; --s5: #4a5560; background: var(--paper); }
@media (prefers-color-scheme: dark) { svg { --paper: #14171b; --ink: #e8ebef; --soft: #a5aeb9; --rule: #363c45;
  --s0: #5cb3f0; --s1: #ff8f50; --s2: #35cfa4; --s3: #ee9bd2; --s4: #e3b341; --s5: #b3bcc7; } }
text { fill: var(--ink); font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; } .soft { fill: var(--soft); }
path { fill: none; stroke-width: 2; } .rule { stroke: var(--rule); stroke-width: 1; }
.title { font-weight: 600; font-size: 14px; }
"""
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2")


def draw(title, panels):
    """`panels`: (name of the y axis, name of the x axis, {what: [(x, y, least, most)]})."""
    names = list(dict.fromkeys(name for *_, lines in panels for name in lines))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(panels)} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>",
        f'<rect width="{WIDTH * len(panels)}" height="{HEIGHT}" style="fill: var(--paper)"/>',
        f'<text class="title" x="14" y="20">{escape(title)}</text>',
    ]
    at = 14
    for number, name in enumerate(names):
        out.append(f'<path d="M{at} 38h22" style="{stroke(number)}"/><text x="{at + 27}" y="42">{escape(name)}</text>')
        at += 50 + 7 * len(name)
    for number, (y_name, x_name, lines) in enumerate(panels):
        out += [f'<g transform="translate({number * WIDTH} 0)">', *panel(y_name, x_name, lines, names), "</g>"]
    return "\n".join([*out, "</svg>", ""])


def stroke(number):
    return f"stroke: var(--s{number % 6}); stroke-dasharray: {DASHES[number % 6] or 'none'}"


def panel(y_name, x_name, lines, names):
    points = [point for line in lines.values() for point in line]
    if not points:
        return [text("nothing measured above 0", LEFT, HEIGHT / 2, "start")]
    x = Axis([point[0] for point in points], LEFT, WIDTH - RIGHT)
    y = Axis([value for point in points for value in point[1:]], HEIGHT - BOTTOM, TOP)
    out = []
    for tick in y.ticks:
        out.append(f'<path class="rule" d="M{LEFT} {y.place(tick):.1f}H{WIDTH - RIGHT}"/>')
        out.append(text(short(tick), LEFT - 6, y.place(tick) + 4, "end"))
    for tick in x.ticks:
        out.append(f'<path class="rule" d="M{x.place(tick):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        out.append(text(short(tick), x.place(tick), HEIGHT - BOTTOM + 17))
    out.append(text(x_name, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12))
    out.append(f'<g transform="translate(15 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)">{text(y_name, 0, 0)}</g>')
    for name, line in lines.items():
        out += curve(name, names.index(name), line, x, y)
    return out


def curve(name, number, line, x, y):
    style = stroke(number)
    points = " L".join(f"{x.place(at):.1f} {y.place(middle):.1f}" for at, middle, *_ in line)
    out = [f'<path d="M{points}" style="{style}"/>']
    for at, middle, least, most in line:
        left, top = f"{x.place(at):.1f}", f"{y.place(middle):.1f}"
        told = escape(f"{name}: {middle:.4g} at {at:.4g} ({least:.4g} to {most:.4g})")
        out.append(f'<path d="M{left} {y.place(least):.1f}V{y.place(most):.1f}" style="{style}; stroke-width: 1"/>')
        fill = f"fill: var(--s{number % 6})"
        out.append(f'<circle cx="{left}" cy="{top}" r="3" style="{fill}"><title>{told}</title></circle>')
    return out


def text(what, x, y, anchor="middle"):
    return f'<text class="soft" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(what)}</text>'


class Axis:
    """Logarithmic, from one decade's edge to another's."""

    def __init__(self, values, begin, end):
        least, most = math.log10(min(values)), math.log10(max(values))
        self.low, self.high = math.floor(least + 1e-9), math.ceil(most - 1e-9)
        self.high = max(self.high, self.low + 1)
        self.begin, self.end = begin, end
        decades = range(self.low, self.high + 1)
        steps = (1, 2, 5) if self.high - self.low == 1 else (1,)
        self.ticks = [step * 10.0**decade for decade in decades for step in steps if decade < self.high or step == 1]

    def place(self, value):
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)


def short(number):
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
