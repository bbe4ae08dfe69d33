"""torch's own table of operators (``op_db``), each compiled by Inductor through Silo on the CPU, against eager torch.

``PYTHONPATH=src python -m tests.operators --jobs 16`` runs all of it; needs the package ``expecttest``, which torch's
table imports.
"""
