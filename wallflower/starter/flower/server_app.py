"""Finds the best page without learning anyone's outcome."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from wallflower import PrivateBandit, experiment, run_directory

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train models here first, if they are what you compare; then let people decide."""
    config = experiment(context.run_config)
    run_dir = run_directory(context.run_config, config, context.run_id)
    strategy = PrivateBandit(config, run_dir)
    strategy.start(grid)
    print([arm.name for arm in strategy.arms if arm.active])
