"""Triton programs as they are, launched by Silo: Triton compiles and tunes, and its launches go through Silo's guard.

``accelerate()`` puts two methods on Triton's class of functions, ``run`` and ``__getitem__``. A call that the guard has
an entry for is packed and passed to the driver without Python code. Any other goes to
:meth:`.program_kernels.ProgramKernel.on_miss`, and launches that Silo does not support go through Triton, with a reason
in the report.

The functions for other parts of Silo:

- :data:`.program_kernels.TABLE` has every kernel that was launched (:class:`.program_kernels.ProgramKernel`:
``source``,
  ``fingerprint``, ``variants``, ``refusals``) while it lives, or to the end of the process after ``TABLE.keep()``.
- :class:`.program_kernels.ProgramVariant` is one variant that a launch used: typed signature, specialization,
options, launch
  info, target, blob, and Triton's own compiled kernel with its signature, constants and metadata.
- :class:`.program_kernels.VariantProvider` is called in one place, before Triton compiles (``provide``), and after each
variant that Triton compiled (``compiled``): ``TABLE.providers`` has the providers in order.
"""
