"""The layouts of daemon/store/wire/record.def, for lua/embed.py and for tests.

    RECORDS["HEAD"].at["FENCE"]  the field's offset
    RECORDS["HEAD"].size         bytes
    RECORDS["HEAD"].lua          format for the struct library of Redis
    RECORDS["HEAD"].struct       the same, contained records taken apart
"""

import os
import re
import struct

DEF = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                   "daemon", "store", "wire", "record.def")
SCALARS = {"B": "B", "I2": "H", "I4": "I", "d": "d"}
ROW = re.compile(r"^(RECORD|FIELD)\((\w+)(?:, (\w+), (\w+))?\)", re.M)


class Record:
    """One record; fields are added in their order."""

    def __init__(self):
        self.at, self.lua, self.struct = {}, "<", struct.Struct("<")

    @property
    def size(self):
        return self.struct.size

    def add(self, field, kind, records):
        code = SCALARS.get(kind) or kind[1:] + "s"
        if kind in records:
            code = records[kind].struct.format[1:]
            kind = f"c{records[kind].size}"
        self.at[field] = self.size
        self.lua += kind
        self.struct = struct.Struct(self.struct.format + code)


def read():
    records = {}
    with open(DEF, encoding="ascii") as file:
        for row, name, field, kind in ROW.findall(file.read()):
            if row == "RECORD":
                records[name] = Record()
            else:
                records[name].add(field, kind, records)
    return records


RECORDS = read()


def constants():
    """What a script may call it: HEAD, HEAD_FORMAT, HEAD_FENCE (an offset)."""
    values = {}
    for name, record in RECORDS.items():
        values[name] = str(record.size)
        values[f"{name}_FORMAT"] = f"'{record.lua}'"
        for field, at in record.at.items():
            values[f"{name}_{field}"] = str(at)
    return values
