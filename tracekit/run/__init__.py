"""What a run is: its settings, the files in its folder, and the packages and the machine that it ran with."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.run import environment, folder, kernels_json, run_json, seal
    from tracekit.run.environment import (
        Place,
        Say,
        configuration_folder,
        cpu_state,
        first_line,
        hardware_key,
        machine_key,
        model_errors,
        place,
        require,
        silent,
        write_place,
    )
    from tracekit.run.folder import (
        ANALYSIS,
        FILES,
        GRAPH,
        KERNELS,
        REPORT,
        RUN,
        TRACE,
        VERIFY,
        graph_of,
        is_page_of,
        page_of,
    )
    from tracekit.run.run_json import (
        Run,
        check_folder,
        check_replaced,
        holds_settings,
        read,
        run_of_script,
        run_of_settings,
        settings_of,
        unused_folder,
        write,
    )
    from tracekit.run.settings import (
        ATTENTIONS,
        DEVICES,
        DTYPES,
        LINKS,
        WEIGHTS,
        WORKLOAD_NAMES,
        Attention,
        Device,
        Dtype,
        Settings,
        Split,
        Synchronize,
        Weights,
        WorkloadName,
    )
    from tracekit.run.verify_json import joined, to_json, verification_of
else:
    __getattr__ = lazily(__name__, __file__)
