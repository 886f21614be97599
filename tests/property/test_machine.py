"""The engine answers as the model does, whatever happens to its disk.

    pytest tests/property/test_machine.py --hypothesis-profile=long      some minutes

What is found is remembered, and made shorter by the long run only: that takes minutes.
"""

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import StoreMachine

QUICK = (Phase.explicit, Phase.reuse, Phase.generate)


def test_the_engine_answers_as_the_model_does():
    is_long = settings.get_current_profile_name() == "long"
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
            phases=tuple(Phase) if is_long else QUICK,
        ),
    )
