"""Importing this lets hypothesis take as long as it needs: how fast a machine is decides no test.

A test module's ``@settings`` starts from the profile that is loaded when the module is imported; conftest files import
this before.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
