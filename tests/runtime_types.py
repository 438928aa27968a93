"""The check of annotations at run time that `conftest` applies to every function of cpt_jax."""

from beartype import BeartypeConf, beartype

# An int is a float and a float is a complex, as type checkers have it (PEP 484).
check = beartype(conf=BeartypeConf(is_pep484_tower=True))
