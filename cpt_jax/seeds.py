"""Seeds as hashes of what they are for."""

import hashlib
import json


def hash_seed(*parts: str | int) -> int:
    """A 32-bit seed from the parts, such as (run seed, source name, purpose).

    Grain adds the epoch to its seed: with seed + k, one run's second epoch would be its
    neighbour's first.
    """
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")
