"""Importing this module removes hypothesis's time limits, because no test should depend on the machine's speed.

The ``@settings`` of a test module start from the profile that is loaded when the module is imported, so conftest files
import this module first.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
