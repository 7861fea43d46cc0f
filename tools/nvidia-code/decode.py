"""The machine code that NVIDIA's driver made of shaders, from its shader cache.

Usage, on a machine with the driver:
    __GL_SHADER_DISK_CACHE=1 __GL_SHADER_DISK_CACHE_PATH=CACHE npx shaderl qualify --family matrix --kernel matrix-rows
and anywhere (needs Python's zstandard and nvdisasm, of the package nvidia-cuda-nvdisasm or of CUDA):
    python3 tools/nvidia-code/decode.py CACHE OUT --arch SM90 [--nvdisasm FILE]

OUT gets one .sass file for each shader of the cache. Each line says what the instruction waits for before it starts
(mask of six scoreboards) and which scoreboard it takes until its result is there (w) or its operands are read (r):
nvdisasm does not print these. A load whose scoreboard is waited for a few lines below is not in flight.

The cache's format is not documented. Read here: driver 580.159.04. A .toc file holds entries of 24 bytes after 32 of
header, whose last two words are offset and size in the .bin file of the same name; there, 36 bytes of header precede a
zstd frame. Of its objects, those with the mark "NVuc" are shaders: a table of sections (type, size, offset), of which
type 1 is the code.
"""

import argparse
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import zstandard

ENTRY = 24
TABLE = 32
SECTION_HEADER = 36
INSTRUCTION = 16
NO_SCOREBOARD = 7


def objects(toc: pathlib.Path):
    """Unpacked objects of a cache file."""
    table = toc.read_bytes()
    packed = toc.with_suffix(".bin").read_bytes()
    if table[:4] != b"CDVN":
        sys.exit(f"reading {toc}: found the mark {table[:4]!r}; wanted b'CDVN'. It is no cache of a driver known here.")
    for at in range(TABLE, len(table) - ENTRY + 1, ENTRY):
        offset, size = struct.unpack_from("<2I", table, at + 16)
        unpacked = struct.unpack_from("<I", packed, offset + 32)[0]
        frame = packed[offset + SECTION_HEADER : offset + SECTION_HEADER + size - 4]
        yield zstandard.ZstdDecompressor().decompress(frame, max_output_size=unpacked)


def code(data: bytes) -> bytes | None:
    """The code of a shader object; None for other objects."""
    start = data.find(b"NVuc")
    if start < 0:
        return None
    data = data[start:]
    for at in range(TABLE, 0x180, 4):
        kind, size, offset = struct.unpack_from("<3I", data, at)
        if kind == 1 and at < offset < 0x1000 and 0 < size <= len(data) - offset and size % INSTRUCTION == 0:
            return data[offset : offset + size]
    return None


def scoreboards(word: int) -> str:
    """What an instruction waits for and takes, from the upper half of its encoding (Volta and later)."""
    control = word >> 41
    write, read, wait = (control >> 5) & 7, (control >> 8) & 7, (control >> 11) & 63
    takes = [f"w{write}"] * (write != NO_SCOREBOARD) + [f"r{read}"] * (read != NO_SCOREBOARD)
    return f"{'' if wait == 0 else f'wait {wait:06b}':11} {' '.join(takes):5}"


def listing(program: bytes, nvdisasm: str, arch: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(program)
        file.flush()
        text = subprocess.run(
            [nvdisasm, "--binary", arch, file.name], capture_output=True, text=True, check=True, timeout=120
        ).stdout
    lines = []
    for at, instruction in re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", text):
        upper = struct.unpack_from("<Q", program, int(at, 16) + 8)[0]
        lines.append(f"{at:>6}  {scoreboards(upper)} {instruction}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--arch", default="SM90")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    options = parser.parse_args()
    tocs = sorted(options.cache.rglob("*.toc"))
    if not tocs:
        sys.exit(f"reading {options.cache}: found no .toc file; wanted a folder that the driver kept shaders in.")
    options.out.mkdir(parents=True, exist_ok=True)
    number = 0
    for toc in tocs:
        for data in objects(toc):
            program = code(data)
            if program is None:
                continue
            file = options.out / f"{number:03}.sass"
            file.write_text(listing(program, options.nvdisasm, options.arch))
            print(f"{file}: {len(program) // INSTRUCTION} instructions, from {toc}")
            number += 1


if __name__ == "__main__":
    main()
