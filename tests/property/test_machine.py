"""The engine answers as the model does, whatever happens to its disk.

pytest tests/property/test_machine.py --hypothesis-profile=long      some minutes
"""

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import StoreMachine


def test_the_engine_answers_as_the_model_does():
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
