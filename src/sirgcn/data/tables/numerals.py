"""Texts that mean numbers but are written for people: decimal commas, thousands, currencies, percents, units.

Patterns are for RE2 and for Python alike, and match the whole of a text.
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from sirgcn.data.tables.text import WHITE, Bools, Text

PLAIN = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""A number as files have it, without its sign."""

NUMBER = f"[+-]?(?:{PLAIN})"

INFINITY = "[+-]?(?:[Ii]nf(?:inity)?|INF(?:INITY)?)"

FRACTION = r"[+-]?[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?"
"""A number with a decimal point, hardly the code of a category."""

# Minus as typesetters have it: the sign, a dash, the wide form.
_MINUS = "\u2212\u2013\uff0d"
_SIGN = rf"[+\-{_MINUS}]?"
_QUOTE = "['\u2019]"
_PERCENT = "[%\u2030\uff05]"
_GAP = "[ \u00a0\u2007\u2009\u202f]"
_LEAD = "[1-9][0-9]{0,2}"

# Groups of two digits are India's.
_COMMAS = rf"{_LEAD}(?:,[0-9]{{2,3}})*,[0-9]{{3}}(?:\.[0-9]*)?"
_APOSTROPHES = rf"{_LEAD}(?:{_QUOTE}[0-9]{{3}})+(?:[.,][0-9]+)?"
# 1.234 is a number as it stands, and four groups are an address of the internet.
_DOTS = rf"{_LEAD}(?:(?:\.[0-9]{{3}})+,[0-9]+|(?:\.[0-9]{{3}}){{2}})"
_SPACED = rf"{_LEAD}(?:{_GAP}[0-9]{{3}})+(?:[.,][0-9]+)?"
_DECIMAL = r"(?:0|[1-9][0-9]*)?,[0-9]+(?:[eE][+-]?[0-9]+)?"
_WRITTEN = rf"(?:{_COMMAS}|{_APOSTROPHES}|{_DOTS}|{_SPACED}|{_DECIMAL}|{PLAIN})"

_MONEY = "$\u00a2-\u00a5\u058f\u060b\u09f2\u09f3\u0e3f\u17db\u20a0-\u20c0\ufdfc\ufe69\uff04\uffe0\uffe1\uffe5\uffe6"
# Without codes that are words or names, such as ALL, PHP, TOP and TRY: "TOP 10" is no amount.
_CODES = (
    "AED|ARS|AUD|BGN|BRL|BTC|CAD|CHF|CLP|CNY|CZK|DKK|EGP|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW|MXN|MYR|NGN|NOK|NZD|PKR|"
    "PLN|RMB|RUB|SAR|SEK|SGD|THB|TWD|UAH|USD|VND|ZAR"
)
_WORDS = "z\u0142|K\u010d"
_CURRENCY = rf"(?:[A-Z]{{0,3}}[{_MONEY}]|{_CODES}|[Kk]r\.?|Rs\.?|Fr\.|{_WORDS})"
_MANY = r"(?:[kKMB]|bn|mn|Mio\.?|Mrd\.?|million|billion)"

_ODD = "|".join(
    (
        rf"{_SIGN}(?:{_COMMAS}|{_APOSTROPHES}|{_DOTS}|{_DECIMAL})",
        # With a plus it is a telephone number.
        rf"[\-{_MINUS}]?{_SPACED}",
        rf"[{_MINUS}]{_WRITTEN}",
        rf"{_SIGN}{_CURRENCY}{_GAP}?{_SIGN}{_WRITTEN}(?:{_GAP}?{_MANY})?",
        rf"{_SIGN}{_WRITTEN}{_GAP}?(?:{_CURRENCY}|{_PERCENT})",
        rf"\((?:{_CURRENCY}{_GAP}?)?{_WRITTEN}(?:{_GAP}?{_CURRENCY})?\)",
    )
)

# Nine digits in three groups may be a telephone number, digits in parentheses the mark of a footnote.
_CODE = rf"[0-9]{{3}}(?:{_GAP}[0-9]{{3}}){{2}}|\([0-9]+\)"

# No unit begins as a month does. Digits are exponents in it: kg/m3, but not "5 Jan 2024" in any language.
_MEASURE = re.compile(
    rf"{_SIGN}(?P<number>{_WRITTEN})(?P<gap>{_GAP}?)"
    r"(?P<unit>(?!(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))"
    rf"(?:[^\W\d_]|[%\u2030\u00b0\"\u2032\u2033{_MONEY}])(?:\D|(?<=[^\W\d_])[23](?!\d)){{0,29}})"
)

_UNITS = frozenset(
    word
    for words in (
        "mm cm dm km m2 m\u00b2 m3 m\u00b3 km2 km\u00b2 ha ft sqft sqm ml mL cl dl dL kL",
        "mg ug \u00b5g \u03bcg ng kg lb lbs oz mol mmol ppm ppb",
        "ns us \u00b5s \u03bcs ms sec secs min mins hr hrs hours day days week weeks month months yr yrs year years",
        "Hz kHz MHz GHz rpm km/h kmh mph kph m/s kN Nm Pa hPa kPa MPa bar mbar psi deg rad",
        "kW MW GW Wh kWh MWh GWh cal kcal kJ MJ mV kV mA mAh dB dBm",
        "kB KB MB GB TB PB KiB MiB GiB bps kbps Mbps Gbps px dpi bn mn",
    )
    for word in words.split()
)
"""Units that may follow a number without a space. Any other letters take a number with a fraction: 1.5x, but not 2D."""

# The unit of a column is looked for in so many of its texts.
_FIRST = 100


# A column that holds numbers in nine rows of ten is a column of numbers with mistakes in it, in half of them perhaps.
MOSTLY, PERHAPS = 0.9, 0.5


@dataclass(frozen=True, eq=False)
class Numerals:
    """What looks like a number among the texts of a column, none of them missing.

    Args:
        numbers: which texts are numbers.
        odd: which mean a number that is not written as one.
        fractions: which are numbers with a decimal point.
        infinite: whether all others than numbers are infinities.
    """

    numbers: Bools
    odd: Bools
    fractions: Bools
    infinite: bool

    @classmethod
    def of(cls, texts: Text) -> "Numerals":
        """Of these texts."""
        numbers, fractions, infinities = _matches(texts, NUMBER, FRACTION, INFINITY)
        infinite = bool(numbers.any() and (numbers | infinities).all())
        return cls(numbers, find_numerals(texts), fractions, infinite)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def count(self) -> int:
        """How many are numbers, or look so."""
        return int((self.numbers | self.odd).sum())

    def mistake(self, is_typed: bool) -> int | None:
        """The first text that is no number where nearly all are or look so; None where they may be categories.

        Plain numbers that are text by their type are the codes of categories.
        """
        if self.count >= MOSTLY * len(self) and self.odd.any():
            return int(self.odd.argmax())
        # Numbers and infinities are no categories, however many there are of either.
        if not is_typed and (self.count >= MOSTLY * len(self) or self.infinite):
            return int((~self.numbers).argmax())
        return None

    def doubtful(self) -> int | None:
        """The first text that is hardly a category, where half of them look like numbers; None where there is none."""
        seen = self.odd | self.fractions
        return int(seen.argmax()) if seen.any() and self.count >= PERHAPS * len(self) else None

    def complaint(self, value: str) -> str:
        """What is wrong with the text that is a mistake."""
        if not self.odd.any():
            return f"expected a number as in {self.numbers.sum():,} other rows, got {value!r}"
        expected = "numbers with a decimal point, without separators, currencies or units"
        return f"expected {expected}, got {value!r}: write {plainly(value) or 'plain numbers'}"


def find_numerals(texts: Text) -> Bools:
    """Which texts of a column, none of them missing, mean a number that is not written as one."""
    unit = _unit(texts)
    measures = [] if unit is None else [rf"{_SIGN}{_WRITTEN}{_GAP}?{re.escape(unit)}"]
    odd, codes, *measured = _matches(texts, _ODD, _CODE, *measures)
    if codes.sum() > (odd & ~codes).sum():
        odd &= ~codes
    return odd | measured[0] if measured else odd


def _matches(texts: Text, *patterns: str) -> list[Bools]:
    """Which texts have each form; of categories few differ, and every one is looked at once."""
    codes, values = texts.codes()
    return [values.matches(pattern)[codes] for pattern in patterns]


def _unit(texts: Text) -> str | None:
    """What follows the number in most of the first texts, where it is a unit."""
    first = texts.take(np.arange(min(len(texts), _FIRST))).stripped().objects().tolist()
    found = [match for match in map(_MEASURE.fullmatch, first) if match is not None]
    unit, count = Counter(match["unit"] for match in found).most_common(1)[0] if found else ("", 0)
    if 2 * count <= len(first):
        return None
    told = (match["gap"] or re.search("[.,]", match["number"]) for match in found if match["unit"] == unit)
    return unit if unit in _UNITS or not unit[0].isalpha() or any(told) else None


def plainly(text: str) -> str | None:
    """How to write the number that a text means; None where it means none, or stands for thousands or millions.

    >>> plainly("3,14"), plainly("$ 1,234,567.50"), plainly("1.234,5 kg"), plainly("(5 €)"), plainly("five")
    ('3.14', '1234567.50', '1234.5', '-5', None)
    >>> plainly("1,234")
    '1234 or 1.234'
    """
    bare = text.strip(WHITE)
    found = re.fullmatch(rf"(?P<before>\D*?)(?P<number>{_WRITTEN})(?P<after>(?:\D.*)?)", bare, re.DOTALL)
    if found is None or (re.fullmatch(_ODD, bare) or _MEASURE.fullmatch(bare)) is None:
        return None
    if re.fullmatch(_MANY, found["after"].strip(WHITE)):
        return None
    sign = "-" if re.search(rf"[(\-{_MINUS}]", found["before"]) else ""
    if re.fullmatch(rf"{_LEAD},[0-9]{{3}}", found["number"]):
        return " or ".join(sign + found["number"].replace(",", point) for point in ("", "."))
    return sign + _with_point(found["number"])


def _with_point(number: str) -> str:
    """Without marks between thousands, and with a decimal point."""
    number = re.sub(f"{_GAP}|{_QUOTE}", "", number)
    marks = re.findall("[.,]", number)
    if len(marks) > 1 and len(set(marks)) == 1:
        return number.replace(marks[0], "")
    for mark in marks[:-1]:
        number = number.replace(mark, "")
    return number.replace(",", ".")
