local lib = import 'lib.libsonnet';

local chosen = 'namespace=~"$namespace", name=~"$name"';
local ofNode = chosen + ', node=~"$node"';

local watch(name, more='', by='namespace, name') = lib.max(by, 'trafficwatch_' + name, lib.both(chosen, more));
local node(name, by='', more='') =
  lib.max('namespace, name, node' + by, 'trafficwatch_' + name, lib.both(ofNode, more));
local perHour(by, name) =
  lib.increase('cluster, namespace, name' + by, 'traffic_operator_trafficwatch_' + name, chosen, '1h');
// A line at zero, as long as there is a TrafficWatch.
local orNone(expr, label, text, on='') = lib.orNone(expr, label, text, '0 * ' + watch('suppressed'), on);

// A fit node has its value only: its threshold is that of its TrafficWatch.
local threshold = watch('threshold', by='namespace, name, criterion');
local ofThreshold(expr, operator) =
  '%s %s on (cluster, namespace, name, criterion) group_left () %s' % [expr, operator, threshold];
// By how much a node is above the threshold, in one measure or in its worst.
local share(by) = ofThreshold(node('node_value', by), '/');
local worst = 'max by (cluster, namespace, name, node) (%s)' % share(', criterion');
// A measure without a value ranks like one at its threshold.
local ofMeasure = ', criterion, unit';
local closest(expr) =
  '(%s) and on (cluster, namespace, name, node%s) ' % [expr, ofMeasure]
  + lib.top('%s or %s * 0 + 1' % [share(ofMeasure), node('node_threshold', ofMeasure)]);
local reservation(of, by='') =
  node('node_reservation_bits_per_second', by, 'of%s' % of);
local state(name) = node('node_state', ', state', 'state="%s"' % name);

local object = '{{cluster}} {{namespace}}/{{name}}';

// A node that enters a state other than Fit, whose TrafficWatch was there before: a new leader changes nothing. And a
// node that is Fit again, which has a value and no state. Grafana shows no annotation of 0.
local transitions =
  local states(past='') =
    'max by (cluster, namespace, name, node, state) (%s)'
    % lib.series('traffic_operator_trafficwatch_node_state', ofNode, past);
  local before = ' offset $__interval';
  '(%s unless on (cluster, namespace, name, node, state) %s and on (cluster, namespace, name) max by (cluster, namespace, name) (%s))'
  % [states(), states(before), lib.series('traffic_operator_trafficwatch_nodes', chosen, before)]
  + ' or (label_replace(0 * %s + 1, "state", "Fit", "", "") unless on (cluster, namespace, name, node) %s and on (cluster, namespace, name, node) %s)'
    % [node('node_value'), states(), states(before)];

lib.dashboard(
  'trafficwatch',
  'Which nodes are not fit, by how much, and since when; below, limits, evidence and the bandwidth offered to pods.',
  'traffic_operator_build_info',
  [
    lib.choice('namespace', 'Namespace', lib.series('traffic_operator_trafficwatch_nodes'), 'namespace'),
    lib.choice(
      'name', 'TrafficWatch',
      lib.series('traffic_operator_trafficwatch_nodes', 'namespace=~"$namespace"'), 'name'
    ),
    // A fit node has no state, and one without evidence has no value.
    lib.choice(
      'node', 'Node', lib.series('', '__name__=~"traffic_operator_trafficwatch_node_(value|state)", ' + chosen), 'node'
    ),
    lib.topOf('node'),
  ],
  [
    lib.row('Nodes now', folded=false, panels=[
      lib.unfit(ofNode, [
        lib.to('networkprober', 'Paths of ${__value.text}', 'var-node=${__value.text}'),
      ], h=9),
      lib.table(
        'Measures closest to their threshold',
        'The measures that are highest relative to their threshold, also of nodes that are fit. Above 100 % a node counts as unfit; a measure without a value ranks like one at its threshold.',
        [
          lib.label('node', 'Node'),
          lib.value('Value', closest(node('node_value', ofMeasure)), 'sishort'),
          lib.value(
            'Threshold',
            closest('%s or %s' % [node('node_threshold', ofMeasure), ofThreshold('0 * ' + node('node_value', ofMeasure), '+')]),
            'sishort'
          ),
          lib.value('Of the threshold', closest(share(ofMeasure)), 'percentunit', 0, lib.above('red', 1)),
          lib.label('criterion', 'Measure'),
          lib.label('unit', 'Unit'),
          lib.label('name', 'TrafficWatch'),
          lib.label('namespace', 'Namespace'),
          lib.label('cluster', 'Cluster'),
        ],
        ['Of the threshold'],
        'No node is measured', w=14, h=9
      ),
      lib.stat(
        'Nodes by state',
        'Judged nodes in each state; a node counts once for each TrafficWatch. If nodes have no series, there are too many to export, and the tables show those that need attention.',
        'none',
        [
          ['{{state}}', 'sum by (state) (%s)' % watch('nodes', by='namespace, name, state')],
          ['Without series', 'sum(%s)' % watch('nodes_not_exported')],
        ],
        w=5, h=9
      ) + {
        fieldConfig+: {
          overrides: [
            {
              matcher: { id: 'byName', options: color[0] },
              properties: [{ id: 'color', value: { mode: 'fixed', fixedColor: color[1] } }],
            }
            for color in [['Fit', 'green'], ['Unfit', 'red'], ['Unknown', 'blue'], ['Suppressed', 'orange']]
          ],
        },
        options+: { orientation: 'horizontal' },
      },
      lib.alerts(
        'Alerts firing',
        'Firing alerts of the operator: critical ones need action now, warnings soon. Each alert has a runbook.',
        'TrafficOperator.*', w=5, h=9
      ),
    ]),
    lib.row('Nodes over time', [
      lib.lines(
        'Distance to the threshold',
        'Value of each node divided by its threshold, in its worst measure. Above 100 % the node counts as unfit; look at its value in the table.',
        'percentunit',
        [[object + ' {{node}}', lib.top(worst)]],
        w=24, h=9, limit=1
      ),
      lib.timeline(
        'Nodes that were not always fit',
        'The states of the nodes that were not fit for the longest part of the chosen period. Many short stretches are a node that flaps: its threshold is too close to its usual load.',
        [[0, 'Fit', 'green'], [1, 'Unfit', 'red'], [2, 'Unknown', 'blue'], [3, 'Suppressed', 'orange']],
        object + ' {{node}}',
        '(sum by (cluster, namespace, name, node) (%s or 2 * %s or 3 * %s or 0 * %s))'
        % ([state(name) for name in ['Unfit', 'Unknown', 'Suppressed']] + [node('node_value')])
        + ' and on (cluster, namespace, name, node) '
        + lib.top(
          'sum by (cluster, namespace, name, node) (max by (cluster, namespace, name, node, state) (count_over_time(%s)))'
          % lib.series('traffic_operator_trafficwatch_node_state', ofNode, '[$__range] @ end()')
        ),
        'All nodes were fit.'
      ),
      lib.lines(
        'Link use against threshold',
        'Percent of the capacity of the busiest link of each node (maxBandwidthPercent), and the threshold (dashed). Lines above it are nodes that count as unfit.',
        'percent',
        [
          [object + ' {{node}}', lib.top(node('node_value', ', criterion', 'unit="percent"'))],
          [object + ' threshold', watch('threshold', 'unit="percent"', 'namespace, name, criterion'), 'limit'],
        ]
      ),
      lib.lines(
        'Bandwidth against threshold',
        'Bits a second of each node (maxBandwidth), and the threshold (dashed). Lines above it are nodes that count as unfit.',
        'bps',
        [
          [object + ' {{node}}', lib.top(node('node_value', ', criterion', 'unit="bits_per_second"'))],
          [object + ' threshold', watch('threshold', 'unit="bits_per_second"', 'namespace, name, criterion'), 'limit'],
        ]
      ),
      lib.lines(
        'Criteria against threshold',
        'Values of custom queries, each in its own unit, and the threshold (dashed). Lines above it are nodes that count as unfit.',
        'sishort',
        [
          [object + ' {{node}} {{criterion}}', lib.top(node('node_value', ', criterion', 'unit=""'))],
          [object + ' {{criterion}} threshold', watch('threshold', 'unit=""', 'namespace, name, criterion'), 'limit'],
        ]
      ),
    ]),
    lib.row('Evidence', [
      lib.lines(
        'Unknown nodes by reason',
        'Nodes without evidence now, by reason. If all are Unknown at once, the measurement is at fault; single ones point to the node or its exporter.',
        'none',
        [['{{reason}}', lib.orNone('sum by (reason) (%s)' % watch('unknown', by='namespace, name, reason'), 'reason')]]
      ),
      lib.lines(
        'Time since last success',
        'Time since the last evaluation with usable metrics, and its interval (dashed). Above three intervals no label changes; look at the queries on the dashboard Operator.',
        's',
        [
          [object, 'time() - ' + watch('last_success_timestamp_seconds')],
          [object + ' interval', watch('interval_seconds'), 'limit'],
        ]
      ),
      lib.lines(
        'Sample age',
        'Age of the newest sample of each node that is not fit, when it was judged: the oldest. Samples older than spec.maxSampleAge do not count, and the node becomes Unknown; look at its exporter and its scrapes.',
        's',
        [[object + ' {{node}}', lib.top(node('node_sample_age_seconds'))]],
        empty='No node that is not fit has a sample'
      ),
    ]),
    lib.row('Limits, placement and eviction', [
      lib.lines(
        'Unfit nodes against the limit',
        'Unfit nodes, their limit (dashed), and further nodes above the threshold that are not marked (suppressed). If nodes are suppressed, the load is too high for spec.maxUnfit or spec.minFit.',
        'none',
        [
          [object + ' unfit', watch('nodes', 'state="Unfit"')],
          [object + ' limit', watch('limit'), 'limit'],
          [object + ' suppressed', watch('suppressed'), 'warning'],
        ]
      ),
      lib.lines(
        'Marked nodes against the operator-wide ceiling',
        'Nodes with the mark of any TrafficWatch, their limit (--max-unfit, dashed), and nodes that are not marked because of it. If there are such nodes, look at the TrafficWatch that marks most.',
        'none',
        [
          ['{{cluster}} marked', 'max by (cluster) (%s)' % lib.series('traffic_operator_unfit_nodes')],
          ['{{cluster}} limit', 'max by (cluster) (%s)' % lib.series('traffic_operator_unfit_nodes_limit'), 'limit'],
          [object + ' above the ceiling', watch('above_ceiling'), 'warning'],
        ]
      ),
      lib.lines(
        'Room for pods',
        'Nodes that can take the pods and carry no mark, and the marked nodes. At 0, pods with required affinity cannot be scheduled; look at nodes that are cordoned or not Ready.',
        'none',
        [[object + ' room', watch('room')], [object + ' marked', watch('marked')]]
      ),
      lib.lines(
        'Pods of the Deployments',
        'Pods of the managed Deployments, wanted and available. A gap while nodes are unfit means that the fit nodes have no room for them.',
        'none',
        [[
          object + ' {{state}}',
          orNone(watch('deployment_replicas', by='namespace, name, state'), 'state', 'no Deployment'),
        ]],
        w=12
      ),
      lib.lines(
        'Evictions',
        'Pods that were asked to leave unfit nodes in the last hour, by result. If evictions are refused, look at the PodDisruptionBudget.',
        'none',
        [[object + ' {{result}}', orNone(perHour(', result', 'evictions_total'), 'result', 'no eviction')]],
        w=12
      ),
    ]),
    lib.row('Bandwidth offered to pods', [
      lib.lines(
        'Use of the limit',
        'The load of each node, or what its pods request if that is more, divided by its limit. Above 100 % pods may not get what they requested; look for load that no pod declared.',
        'percentunit',
        [[object + ' {{node}}', lib.top('%s / %s' % [reservation('=~"requested|measured"'), reservation('="limit"')])]],
        w=24, h=9, limit=1
      ),
      lib.lines(
        'Offered, requested and measured bandwidth',
        'Sums over all nodes: what pods and everything else may use (limit), what nodes offer, what pods request, and what is measured. If measured is high and requested is low, pods do not declare their load.',
        'bps',
        [[
          object + ' {{of}}',
          'sum by (cluster, namespace, name, of) (%s)'
          % watch('node_reservation_bits_per_second', by='namespace, name, node, of'),
        ]],
        w=12
      ),
      lib.lines(
        'Pods that wait for bandwidth',
        'Pods without a node that request more than any node has free. Above 0, compare what nodes offer with their limit.',
        'none',
        [[object, watch('reservation_waiting_pods', by='namespace, name, resource')]],
        w=12
      ),
    ]),
  ],
  [{
    name: 'Transitions',
    iconColor: 'orange',
    expr: transitions,
    titleFormat: '{{node}} is {{state}}',
    textFormat: '{{namespace}}/{{name}} {{cluster}}',
    tagKeys: 'state',
  }]
)
