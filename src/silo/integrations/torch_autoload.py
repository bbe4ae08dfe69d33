"""The function that torch calls at the end of ``import torch``, through the entry point ``torch.backends``.

torch's import would fail if this function raised, so errors of a damaged installation of Silo are ignored.
"""

from __future__ import annotations

__all__ = ["begin"]


def begin() -> None:
    """Makes the CPU serve ``cuda`` if ``SILO_ON=cpu`` (:mod:`silo.integrations.cuda_on_cpu`).

    In a program that Silo accelerates on a GPU, waits for torch to load its compiler, so that Silo can take part in its
    kernels for GPUs. Otherwise does nothing.

    Raises:
        SettingsError: ``SILO_ON`` or ``SILO_PRETEND`` has an unknown value, or ``SILO_TRITON=off``.
        DeviceError: torch has a GPU here.
    """
    try:
        from silo.settings import inductor_wanted, stand_in_wanted  # noqa: PLC0415  # may be damaged

        is_wanted = stand_in_wanted()
        watched = not is_wanted and inductor_wanted()
    # A damaged installation may raise any error here. It is ignored: a program that uses Silo itself gets the error
    # later.
    except Exception as error:
        if type(error).__name__ == "SettingsError":
            raise
        return
    if is_wanted:
        from silo.integrations.cuda_on_cpu.activation import begin as switch_on  # noqa: PLC0415  # for few programs

        switch_on()
    elif watched:
        from silo.integrations.torch.import_hook import watch_inductor  # noqa: PLC0415  # for accelerated programs

        watch_inductor()
