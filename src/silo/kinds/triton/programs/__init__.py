"""Unchanged Triton programs, launched by Silo: Triton compiles and tunes, and its launches go through Silo's guard.

``accelerate()`` replaces two methods of Triton's class of functions, ``run`` and ``__getitem__``. If the guard has an
entry for a call, the call is packed and passed to the driver without Python code. Any other call goes to
:meth:`.program_kernels.ProgramKernel.on_miss`. Launches that Silo does not support go through Triton, and the report
contains the reason.

Other parts of Silo use these members:

- :data:`.program_kernels.TABLE` has every kernel that was launched (:class:`.program_kernels.ProgramKernel`:
  ``source``, ``fingerprint``, ``variants``, ``refusals``) as long as the kernel's function exists; after
  ``TABLE.keep()``, until the process ends.
- :class:`.program_kernels.ProgramVariant` is one variant that a launch used: typed signature, specialization, options,
  launch info, target, blob, and Triton's own compiled kernel with its signature, constants and metadata.
- :class:`.program_kernels.VariantProvider` supplies compiled variants: it is called before Triton compiles
  (``provide``), and after each variant that Triton compiled (``compiled``). ``TABLE.providers`` lists the providers in
  order.
"""
