"""torch's ``cuda`` device served by the CPU: programs that name it run on a machine without a GPU.

``silo exec --on cpu`` and ``SILO_ON=cpu`` enable it, for a whole process with all of its threads. torch calls
:func:`silo.integrations.torch_autoload.begin` at the end of ``import torch`` (entry point ``torch.backends``).
"""
