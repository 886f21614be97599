"""How long the machines run: Hypothesis' default, or --hypothesis-profile=long."""

from hypothesis import settings

settings.register_profile("long", max_examples=3000)
