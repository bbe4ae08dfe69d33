"""Cubins and AMD code objects made by hand, so that tests need no compiler."""

import struct


def make_elf(sections, *, machine, os_abi, flags):
    """Return an ELF file; each section is (name, type, link, data, size or None for the data's size)."""
    names = b"\0"
    offsets = []
    for name, *_ in [*sections, (".shstrtab",)]:
        offsets.append(len(names))
        names += name.encode() + b"\0"
    everything = [*sections, (".shstrtab", 3, 0, names, None)]
    body = b""
    headers = [struct.pack("<IIQQQQIIQQ", *([0] * 10))]
    for offset, (_name, kind, link, data, size) in zip(offsets, everything, strict=True):
        headers.append(struct.pack("<IIQQQQIIQQ", offset, kind, 0, 0, 64 + len(body), size or len(data), link, 0, 1, 0))
        body += data
    ident = b"\x7fELF" + bytes([2, 1, 1, os_abi, 8]) + bytes(7)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        ident,
        2,
        machine,
        1,
        0,
        0,
        64 + len(body),
        flags,
        64,
        0,
        0,
        64,
        len(headers),
        len(headers) - 1,
    )
    return header + body + b"".join(headers)


def svalue(code, body):
    return struct.pack("<BBH", 4, code, len(body)) + body


def make_cubin(*, old=False, registers=40, frame=16, with_registers=True):
    strings = b"\0kernel\0"
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0) + struct.pack("<IBBHQQ", 1, 0x12, 0, 4, 0, 64)
    general = svalue(0x11, struct.pack("<II", 1, frame))
    if with_registers:
        general = svalue(0x2F, struct.pack("<II", 1, registers)) + general
    parameters = (
        struct.pack("<BBH", 3, 0x19, 12)  # an attribute without a value
        + svalue(0x17, struct.pack("<IHHI", 0, 1, 8, (4 << 18) | 0x1F000))
        + svalue(0x17, struct.pack("<IHHI", 0, 0, 0, (8 << 18) | 0x1F000))
        + struct.pack("<BBH", 1, 0x60, 0)
    )
    return make_elf(
        [
            (".strtab", 3, 0, strings, None),
            (".symtab", 2, 1, symbols, None),
            (".nv.info", 0x70000000, 2, general, None),
            (".nv.info.kernel", 0x70000000, 2, parameters, None),
            (".nv.shared.kernel", 8, 0, b"", 1024),
        ],
        machine=190,
        os_abi=0x33 if old else 0x41,
        flags=0x500550 if old else 0x6005A04,
    )


def pack(value):
    """Encode a value as MessagePack, with the types that metadata needs."""
    if isinstance(value, dict):
        return bytes([0x80 | len(value)]) + b"".join(pack(k) + pack(v) for k, v in value.items())
    if isinstance(value, list):
        return struct.pack(">BH", 0xDC, len(value)) + b"".join(map(pack, value))
    if isinstance(value, str):
        return struct.pack(">BB", 0xD9, len(value)) + value.encode()
    return struct.pack(">BI", 0xCE, value) if value > 127 else bytes([value])


def make_hsaco(**changes):
    kernel = {
        ".name": "kernel",
        ".vgpr_count": 512,
        ".vgpr_spill_count": 188,
        ".private_segment_fixed_size": 628,
        ".group_segment_fixed_size": 64,
        ".args": [
            {".offset": 0, ".size": 8, ".value_kind": "global_buffer"},
            {".offset": 8, ".size": 4, ".value_kind": "by_value"},
            {".offset": 16, ".size": 4, ".value_kind": "hidden_block_count_x"},
        ],
        **changes,
    }
    kernel = {name: value for name, value in kernel.items() if value is not None}
    body = pack({"amdhsa.kernels": [kernel], "amdhsa.target": "amdgcn-amd-amdhsa--gfx90a:xnack+"})
    padding = bytes(-len(body) % 4)
    note = struct.pack("<III", 7, len(body), 32) + b"AMDGPU\0\0" + body + padding
    other = struct.pack("<III", 4, 4, 3) + b"GNU\0" + b"\1\2\3\4"
    return make_elf([(".note", 7, 0, other + note, None)], machine=224, os_abi=64, flags=0x53F)
