"""A plug-in of pytest for other projects' tests: ``--few N`` keeps N of the collected tests, evenly spread."""


def pytest_addoption(parser):
    parser.addoption("--few", type=int, default=0, help="keep so many tests")


def pytest_collection_modifyitems(config, items):
    few = config.getoption("--few")
    if few and len(items) > few:
        kept = [items[len(items) * at // few] for at in range(few)]
        config.hook.pytest_deselected(items=[one for one in items if one not in kept])
        items[:] = kept
