"""An emulator of Cloud Monitoring's metrics: `timeSeries.create`, `timeSeries.list` and
`metricDescriptors`.

    server          HTTP: routes, pages, errors
    write_checks    checks of one time series in a write
    series_store    descriptors and points, in a file
    series_filter   the used part of the filter language
    alignment       points of one series at regular intervals
    aggregation     several aligned series reduced to one for each group

Google offers no such emulator. Series are stored in a file and survive a restart. Not emulated:
distributions, alerting, dashboards, PromQL, retention, IAM. Sources: the API's discovery document
and, for the texts of errors of writes, issues of public repositories that quote them.
"""
