"""The function that torch calls at the end of ``import torch``, by the entry point ``torch.backends``.

torch refuses to be imported if it raises, so a Silo that is damaged must not get as far.
"""

from __future__ import annotations

__all__ = ["begin"]


def begin() -> None:
    """Make ``cuda`` the CPU if ``SILO_ON=cpu`` (:mod:`silo.integrations.cuda_on_cpu`), and do nothing otherwise.

    Raises:
        SettingsError: ``SILO_ON`` or ``SILO_PRETEND`` has no value that is known, or ``SILO_TRITON=off``.
        DeviceError: torch has a GPU here.
    """
    try:
        from silo.settings import stand_in_wanted  # noqa: PLC0415  # may be damaged

        wanted = stand_in_wanted()
    except Exception as error:  # whatever a damaged installation raises; its own users are told
        if type(error).__name__ == "SettingsError":
            raise
        return
    if wanted:
        from silo.integrations.cuda_on_cpu.activation import begin as switch_on  # noqa: PLC0415  # for few programs

        switch_on()
