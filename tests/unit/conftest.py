"""Property tests are judged by what they find, not by how busy the machine was."""

from hypothesis import HealthCheck, settings

settings.register_profile("keepsake", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)
settings.load_profile("keepsake")
