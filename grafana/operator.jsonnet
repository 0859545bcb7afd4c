// The process: leader, controllers, Prometheus, API server, webhook.
local lib = import 'lib.libsonnet';

local errors(by) =
  lib.increase(by, 'traffic_operator_reconcile_errors_total');
local ofProcess(aggregation, expr) =
  '%s by (cluster, pod) (%s and on (cluster, job, instance) %s)'
  % [aggregation, expr, lib.series('traffic_operator_build_info')];
local requests(more='') =
  'sum by (cluster, endpoint) (increase(%s))' % lib.series('traffic_operator_prometheus_requests_total', more, '[5m]');
local quantiles(by, name, legend='') = [
  [legend + q[0], lib.quantile(q[1], by, name)]
  for q in [['p50', '0.5'], ['p99', '0.99']]
];
local week = 604800;

lib.dashboard(
  'operator',
  'What the operator itself fails to do: reconciles, watches, queries and writes; below, its controllers, webhook and processes.',
  'traffic_operator_build_info',
  [],
  [
    lib.row('Failures now', folded=false, panels=[
      lib.table(
        'Reconciles that fail',
        'Failed reconciles in the last 5 minutes, by controller, namespace and the reason in the condition Ready. Above 0 for 15 minutes an alert fires; the log has the error.',
        [
          lib.label('controller', 'Controller'),
          lib.label('namespace', 'Namespace'),
          lib.label('reason', 'Reason'),
          lib.value(
            'Failed (limit 0)',
            errors('cluster, controller, namespace, reason') + ' > 0',
            null, 0, lib.above('red')
          ),
          lib.label('cluster', 'Cluster'),
        ],
        ['Failed (limit 0)'],
        'No reconcile fails', w=8
      ),
      lib.table(
        'Watches that fail',
        'Resources that were not listed once, and restarts of their watches in 5 minutes. Above the limits the operator does not see changes: look at its role, the definition, or the API server.',
        [
          lib.label('resource', 'Resource'),
          lib.value('Not listed (limit 0)', lib.max('resource', 'unlisted_watches') + ' > 0', null, 0, lib.above('red')),
          lib.value(
            'Restarts (limit 5)',
            lib.increase('cluster, resource', 'traffic_operator_watch_restarts_total') + ' > 0',
            null, 0, lib.above('red', 5)
          ),
          lib.label('cluster', 'Cluster'),
        ],
        ['Not listed (limit 0)', 'Restarts (limit 5)'],
        'No watch fails', w=8
      ),
      lib.table(
        'Endpoints of Prometheus',
        'Requests of the last 5 minutes to each endpoint (spec.prometheus), and the share without a usable answer. If it is above 0, TrafficWatches keep their labels; look at the results below.',
        [
          lib.label('endpoint', 'Endpoint'),
          lib.value(
            'Failed',
            '(%s or 0 * %s) / (%s > 0)' % [requests('result!="success"'), requests(), requests()],
            'percentunit', 0, lib.above('red', 0.01)
          ),
          lib.value('Requests', requests(), null, 0),
          lib.label('cluster', 'Cluster'),
        ],
        ['Failed'],
        'No requests', w=8
      ),
      lib.stat(
        'Leaders',
        'Pods that report being the leader. Each cluster needs one: with none, nothing is decided. Two can show for one scrape after a change of leader.',
        'none',
        [['{{cluster}}', 'sum by (cluster) (%s)' % lib.series('traffic_operator_leader')]],
        [['red', null], ['green', 1], ['red', 2]], w=8
      ),
      lib.stat(
        'Failed writes',
        'Writes to the Kubernetes API that failed in the last 5 minutes, without conflicts (409) and objects that are gone (404). If there are any, look at the codes below; code 0 is no answer.',
        'none',
        [[
          'failed',
          'round(sum(increase(%s))) or vector(0)'
          % lib.series('traffic_operator_api_requests_total', 'verb!~"get|list|watch", code!~"2..|404|409"', '[5m]'),
        ]],
        [['green', null], ['orange', 1]], w=8
      ),
      lib.stat(
        'Webhook certificate',
        'Time until the first certificate of the webhook expires. Below a week, renewal fails: look at the Secret and at the logs of the webhook.',
        's',
        [[
          '{{cluster}}',
          'min by (cluster) (%s > 0) - time()' % lib.series('traffic_operator_injector_cert_not_after_seconds'),
        ]],
        [['red', null], ['green', week]], w=8, empty='No webhook'
      ),
    ]),
    lib.row('Controllers and Prometheus', folded=false, panels=[
      lib.lines(
        'Failed reconciles by controller',
        'Failed reconciles in 5 minutes, by controller and reason. A constant level is one object that keeps failing; the table above has its namespace.',
        'none',
        [['{{controller}} {{reason}}', lib.orNone(errors('controller, reason'), 'reason')]]
      ),
      lib.lines(
        'Duration of reconciles',
        'The 99th percentile by controller. If it rises, look at the API server, at Prometheus, and at the CPU limit of the container.',
        's',
        [['{{controller}} p99', lib.quantile('0.99', 'controller, ', 'traffic_operator_reconcile_duration_seconds')]]
      ),
      lib.lines(
        'Evaluations of TrafficWatches',
        'Evaluations a second by result: ok, failed (no answer) and low_coverage (fewer than half of the nodes have data). Only ok changes labels; look at the endpoint of the failed ones.',
        'ops',
        [[
          '{{cluster}} {{namespace}}/{{name}} {{result}}',
          lib.rate('cluster, namespace, name, result', 'traffic_operator_trafficwatch_evaluations_total'),
        ]],
        empty='No evaluations'
      ),
      lib.lines(
        'Requests to Prometheus',
        'Requests a second by endpoint and result. A result other than success is the reason why labels stay as they are.',
        'reqps',
        [['{{endpoint}} {{result}}', lib.rate('endpoint, result', 'traffic_operator_prometheus_requests_total')]],
        w=12, empty='No requests'
      ),
      lib.lines(
        'Duration of requests to Prometheus',
        'Median and 99th percentile by endpoint. If it comes near the timeout, Prometheus is overloaded or the query is too wide.',
        's',
        quantiles('endpoint, ', 'traffic_operator_prometheus_request_duration_seconds', '{{endpoint}} '),
        w=12, empty='No requests'
      ),
    ]),
    lib.row('Kubernetes API', [
      lib.lines(
        'Requests to the API server',
        "The operator's own requests a second by verb, resource and status code; code 0 is no answer. Without changes there are only watches and the lease: look at the resource that is written.",
        'reqps',
        [['{{verb}} {{resource}} {{code}}', lib.rate('verb, resource, code', 'traffic_operator_api_requests_total')]],
        w=24
      ),
    ]),
    lib.row('Webhook and lists of peers', [
      lib.lines(
        'Admission requests',
        'Pods that the webhook reviewed, a second, by result; skipped pods by reason. Errors let pods start without an agent; look at the logs of the webhook.',
        'reqps',
        [['{{result}} {{skip_reason}}', lib.rate('result, skip_reason', 'traffic_operator_injector_requests_total')]],
        empty='No requests'
      ),
      lib.lines(
        'Duration of admission',
        'Median and 99th percentile of the answers of the webhook. The creation of a pod waits for it; if it is high, look at the CPU limit of the webhook.',
        's',
        quantiles('', 'traffic_operator_injector_request_duration_seconds'),
        empty='No requests'
      ),
      lib.lines(
        'Requests for lists',
        'Requests of agents by status code: 200 a new list, 304 no change, 401 and 403 not permitted, 404 no such prober, 503 not ready yet. If refusals stay, agents stop probing.',
        'reqps',
        [['{{code}}', lib.rate('code', 'traffic_operator_networkprober_pinglist_requests_total')]],
        empty='No requests'
      ),
    ]),
    lib.row('Processes', [
      lib.lines(
        'Memory',
        'Resident memory of each pod, controllers and webhooks. Near the limit of its container a pod is killed; its memory grows with the number of nodes and pods.',
        'bytes',
        [['{{cluster}} {{pod}}', ofProcess('max', lib.series('process_resident_memory_bytes'))]],
        w=12
      ),
      lib.lines(
        'CPU',
        'CPU cores used by each pod. At the limit of its container reconciles are late.',
        'short',
        [[
          '{{cluster}} {{pod}}',
          ofProcess('sum', 'rate(%s)' % lib.series('process_cpu_seconds_total', '', '[$__rate_interval]')),
        ]],
        w=12
      ),
    ]),
  ],
  [{
    name: 'Changes of leader',
    iconColor: 'blue',
    expr: 'max by (cluster, pod) (%s == 1) unless on (cluster, pod) max by (cluster, pod) (%s == 1)' % [
      lib.series('traffic_operator_leader'),
      lib.series('traffic_operator_leader', '', ' offset $__interval'),
    ],
    titleFormat: '{{pod}} leads',
    textFormat: '{{cluster}}',
    tagKeys: 'pod',
  }]
)
