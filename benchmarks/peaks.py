"""What accelerators can do at most, by the names that backends give them."""

# 10^12 operations per second of dense bfloat16 products (float16 where there is no bfloat16), as
# the makers state them. A name is looked up by the longest entry that it contains.
BFLOAT16 = {
    "B200": 2250,
    "GH200": 989.4,
    "H200": 989.4,
    "H100": 989.4,
    "H100 NVL": 835.5,
    "H100 PCIe": 756,
    "A100": 312,
    "A10": 125,
    "A10G": 70,
    "A30": 165,
    "L4": 121,
    "L40S": 362,
    "T4": 65,
    "V100": 125,
    "RTX 3090": 71,
    "RTX 4090": 165.2,
    "MI250X": 191.5,
    "MI300X": 1307.4,
    "TPU v4": 275,
    "TPU v5 lite": 197,
    "TPU v5e": 197,
    "TPU v5": 459,
    "TPU v5p": 459,
    "TPU v6 lite": 918,
    "TPU v6e": 918,
}


def peak_of(device):
    """Operations per second in bfloat16, or None for a device that is not in the table.

    A slice of a GPU (MIG) has a part of it, so there is no answer for one.
    """
    if not device or "MIG" in device:
        return None
    words = f" {device} ".replace("-", " ")
    found = [name for name in BFLOAT16 if f" {name} " in words]
    return BFLOAT16[max(found, key=len)] * 1e12 if found else None
