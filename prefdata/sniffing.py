"""What a file is, read off its bytes: packed, in an encoding of its own, or no data at all."""

from __future__ import annotations

import codecs
import encodings.aliases
import gzip
import re
import shutil
import zipfile
import zlib
from functools import cache
from pathlib import Path
from typing import IO

import pyarrow as pa

from prefdata.errors import ConfigError, InputError, did_you_mean

_BLOCK, _HEAD = 1 << 20, 1 << 20
_AGAIN = "Get the file again."
_UNPACK = "Unpack it, and give the data file in it."
_MAGIC = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the data", "Fetch the file: git lfs pull"),
    (b"SQLite format 3\0", "is an SQLite database", "Export the table as JSON lines, CSV or Parquet."),
    (b"BZh", "is packed with bzip2", _UNPACK),
    (b"\xfd7zXZ\0", "is packed with xz", _UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive", _UNPACK),
    (b"Rar!\x1a\x07", "is a RAR archive", _UNPACK),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an old Office document (.xls, .doc)", "Save the sheet as CSV (UTF-8)."),
    (b"%PDF-", "is a PDF, not data", "Give the data file."),
    (b"\x89PNG", "is a picture, not data", "Give the data file."),
    (b"\xff\xd8\xff", "is a picture, not data", "Give the data file."),
    (b"\x93NUMPY", "is a NumPy array, not rows", "Save the rows as JSON lines, CSV or Parquet."),
    (b"\x89HDF\r\n", "is an HDF5 file", "Save the rows as JSON lines, CSV or Parquet."),
    (b"Obj\x01", "is an Avro file", "Save the rows as JSON lines, CSV or Parquet."),
    (b"ORC", "is an ORC file", "Save the rows as JSON lines, CSV or Parquet."),
)
_PAGE = re.compile(rb"(?:<!--.*?-->\s*)?(?:<!doctype html|<html|<head|<\?xml)", re.IGNORECASE | re.DOTALL)
_ANSWER = re.compile(
    rb"(?:[45]\d\d\b|(?:entry |page |file |repository )?not found|invalid (?:user|cred)|unauthorized|forbidden|"
    rb"access (?:to|denied)|too many requests|bad gateway|service unavailable|internal server error|rate limit)[^\n]*\s*\Z",
    re.IGNORECASE,
)
_NAMES = {"gb18030": "GBK/GB18030", "big5": "Big5", "shift_jis": "Shift-JIS", "euc_jp": "EUC-JP",
          "cp1252": "Windows-1252", "latin-1": "Latin-1"}  # fmt: skip

_NO_ENCODINGS = ("charmap", "idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape")


def start_of(path: Path, size: int = 512) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as file:
        return file.read(size)


def refuse_other_files(path: Path, name: str) -> None:
    """Raise InputError for what is often found in the place of data: a pointer, a page, an archive, a database."""
    start = start_of(path)
    for magic, what, hint in _MAGIC:
        if start.startswith(magic):
            raise InputError(what, where=name, hint=hint)
    text = start.removeprefix(codecs.BOM_UTF8).lstrip()
    if _PAGE.match(text):
        kind = "an XML" if text.startswith(b"<?") else "an HTML"
        raise InputError(f"is {kind} page, not the data", where=name, hint="Download the raw file.")
    if len(start) < 300 and _ANSWER.match(text):
        said = text.decode("utf-8", "replace").strip()
        raise InputError(f"holds a server's answer ({said!r}), not the data", where=name, hint="Download it again.")
    if start.startswith(b"PK\x03\x04"):
        excel = zipfile.is_zipfile(path) and any(n.startswith("xl/") for n in zipfile.ZipFile(path).namelist())
        hint = "Save the sheet as CSV (UTF-8)." if excel else _UNPACK
        raise InputError("is an Excel workbook" if excel else "is a ZIP archive", where=name, hint=hint)
    if start[257:262] == b"ustar":
        raise InputError("is a tar archive", where=name, hint=_UNPACK)
    if start[:1] == b"\x80" and start[1:2] in b"\2\3\4\5":
        hint = "Save the rows as JSON lines or Parquet."
        raise InputError("is a Python pickle, which can run code and is never loaded", where=name, hint=hint)


def packed(start: bytes) -> bool:
    """True for gzip and zstd."""
    return start[:2] == b"\x1f\x8b" or start[:4] == b"\x28\xb5\x2f\xfd"


def unpack(path: Path, name: str, held: Path) -> None:
    """Write a decompressed copy, of all members or frames: a compressed stream cannot be cut into chunks."""
    opened: IO[bytes]
    with path.open("rb") as file, held.open("wb") as plain:
        if start_of(path, 2) == b"\x1f\x8b":
            opened = gzip.open(file)  # type: ignore[assignment]  # noqa: SIM115
        else:
            opened = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
        try:
            shutil.copyfileobj(opened, plain, _BLOCK)
        except (EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # a disk that is full
                raise
            # The first bytes were those of its kind: this is said of what follows them.
            more = "Not a gzipped" in str(error) or "Unknown frame" in str(error)
            what = "has other bytes behind its compressed data" if more else f"is broken or cut off: {error}"
            raise InputError(what, where=name, hint=_AGAIN) from error


# ------------------------------------------------------------------------------------------------ encodings


def codec(name: str) -> str:
    """Python's name of a text encoding. Raises ConfigError for an unknown one."""
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):
        found = None
    if found is None or not found._is_text_encoding or found.name in _NO_ENCODINGS:
        known = {alias.replace("_", "-") for pair in encodings.aliases.aliases.items() for alias in pair}
        hint = did_you_mean(name, sorted(known)) or "For example: gb18030, utf-16, latin-1, shift-jis."
        raise ConfigError(f"--encoding {name}: no such encoding", hint=hint)
    return found.name


def recode(path: Path, name: str, encoding: str, held: Path) -> None:
    """Write a UTF-8 copy of a file in another encoding. Raises InputError at the first byte that does not decode."""
    decoder = codecs.getincrementaldecoder(encoding)()
    read, lines, first = 0, 1, True
    with path.open("rb") as file, held.open("wb") as out:
        while True:
            block = file.read(_BLOCK)
            read += len(block)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                bad = error.object[error.start]
                at = read - len(error.object) + error.start
                line = lines + error.object[: error.start].decode(encoding, "ignore").count("\n")
                what = f"is not {encoding} (byte 0x{bad:02x} at {at})"
                raise InputError(what, where=f"{name}:{line}", hint="Name another encoding.") from error
            except UnicodeError as error:  # UTF-16 and UTF-32, of a file that does not begin with their mark
                raise InputError(f"is not {encoding}: {error}", where=name, hint=f"Try {encoding}-le.") from error
            out.write((text.removeprefix("\ufeff") if first else text).encode())
            lines += text.count("\n")
            first = first and not text
            if not block:
                return


def refuse_other_encodings(path: Path, name: str) -> None:
    """Raise InputError where the first MiB shows a file that is not UTF-8 as a whole; single lines are left to their readers.

    It is not if most of its lines are not; or if many are not, and none holds a letter of UTF-8.
    """
    head = start_of(path, _HEAD)
    wide = _wide(head)
    if wide:
        raise InputError(f"is {wide.upper()}, not UTF-8", where=name, hint=f"--encoding {wide} reads it.")
    if head.isascii():
        return
    lines = head.split(b"\n")
    if len(head) == _HEAD and len(lines) > 1:
        lines.pop()
    good, bad = 0, list[tuple[int, int]]()
    for i, line in enumerate(lines):
        if not line.isascii():
            try:
                codecs.utf_8_decode(line, "strict", len(lines) > 1)
                good += 1
            except UnicodeDecodeError as error:
                bad.append((i, error.start))
    if (len(bad) > good and 2 * len(bad) >= len([x for x in lines if x.strip()])) or (len(bad) >= 20 and not good):
        if b"\0" in head:
            raise InputError("is no text: it holds NUL bytes", where=name, hint="Is it JSON or CSV at all?")
        looks = guess_encoding(b"\n".join(lines[i] for i, _ in bad[:1000]))
        number, at = bad[0]
        what = f"is not UTF-8 (byte 0x{lines[number][at]:02x}); looks like {_NAMES[looks]}"
        raise InputError(what, where=f"{name}:{number + 1}", hint=f"--encoding {looks} reads it.")


def _wide(head: bytes) -> str:
    """The encoding of two or four bytes a character that the head of a file shows, or nothing."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    some = head[:256]
    if len(some) > 8 and max(some[::2].count(0), some[1::2].count(0)) * 3 > len(some):
        return "utf-16-le" if some[1::2].count(0) > some[::2].count(0) else "utf-16-be"
    return ""


def looks_like(data: bytes) -> str:
    """The encoding of bytes that are not UTF-8, for people."""
    return _NAMES[guess_encoding(data)]


def guess_encoding(data: bytes) -> str:
    """The encoding, of those seen in such files, in which most characters of the bytes are common ones."""
    best, most = "cp1252" if re.search(rb"[\x80-\x9f]", data) else "latin-1", 0.5
    for name, common in _common().items():
        try:
            decoded = codecs.getincrementaldecoder(name)().decode(data)
        except UnicodeDecodeError:
            continue
        wide = [c for c in decoded if c > "\x7f"]
        share = sum(c in common for c in wide) / max(1, len(wide))
        if share > most:
            best, most = name, share
    return best


@cache
def _common() -> dict[str, frozenset[str]]:
    """The frequent characters of each encoding: the first level of the Chinese ones, kana of the Japanese ones."""

    def level(name: str, first: int, last: int) -> frozenset[str]:
        pairs = (bytes([a, b]) for a in range(first, last) for b in (*range(0x40, 0x7F), *range(0xA1, 0xFF)))
        marks = "\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f\u201c\u201d\uff08\uff09"
        return frozenset(marks + "".join(p.decode(name, "ignore") for p in pairs))

    chinese = level("gb2312", 0xB0, 0xD8)
    kana = frozenset(map(chr, range(0x3040, 0x3100))) | chinese
    return {"gb18030": chinese, "big5": level("big5", 0xA4, 0xC7), "shift_jis": kana, "euc_jp": kana}
