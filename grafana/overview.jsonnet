// What is wrong, of all kinds. The dashboard of a kind has the rest.
local lib = import 'lib.libsonnet';

local watch(name, more='') = lib.max('namespace, name', 'trafficwatch_' + name, more);
local nodes(state) = watch('nodes', 'state="%s"' % state);

// The operator counts by namespace and name, and what agents measure has both in one label.
local prober(aggregation, series) =
  '%s by (cluster, prober) (label_join(%s, "prober", "/", "namespace", "name"))' % [aggregation, series];
local pods(state) =
  prober('max', lib.max('namespace, name', 'networkprober_pods', 'state="%s"' % state));

lib.dashboard(
  'overview',
  'What is wrong now: nodes, paths, streams and reflectors, worst first.',
  'traffic_operator_build_info',
  [],
  [
    lib.row('What is worst now', folded=false, panels=[
      lib.unfit('', [lib.to('trafficwatch', 'Measures of ${__value.text}', 'var-node=${__value.text}')], h=7),
      lib.blamed('', '10', [
        lib.to('networkprober', 'Paths of ${__value.text}', 'var-prober=${__data.fields.NetworkProber}&var-node=${__value.text}'),
      ], w=12, h=7),
      lib.reflectorSets('', [
        lib.to('routereflector', 'Routes of ${__value.text}', 'var-name=${__value.text}'),
      ], w=12, h=7),
      lib.swarms('', [
        lib.to('swarm', 'Streams of ${__value.text}', 'var-namespace=${__data.fields.Namespace}&var-name=${__value.text}'),
      ], w=18, h=6),
      lib.alerts(
        'Alerts firing',
        'Firing alerts of the operator and of everything it runs: critical ones need action now, warnings soon. Each alert has a runbook.',
        '(TrafficOperator|NetworkProber|Swarm|RouteReflector).*',
        w=6, h=6
      ),
    ]),
    lib.row('TrafficWatches and NetworkProbers', folded=false, panels=[
      lib.table(
        'TrafficWatches',
        'TrafficWatches with unfit nodes and their limit. If nodes are suppressed, the limit is reached; above 3 intervals since the last success, no label changes, and Prometheus is the first to look at.',
        [
          lib.label('name', 'TrafficWatch', [
            lib.to('trafficwatch', 'Nodes of ${__value.text}', 'var-namespace=${__data.fields.Namespace}&var-name=${__value.text}'),
          ]),
          lib.value('Unfit', nodes('Unfit'), steps=lib.above('red')),
          lib.value('Limit', watch('limit')),
          lib.value('Suppressed', nodes('Suppressed'), steps=lib.above('orange')),
          lib.value('Unknown', nodes('Unknown'), steps=lib.above('blue')),
          lib.value('Fit', nodes('Fit')),
          lib.value(
            'Intervals since success (limit 3)',
            '(time() - %s) / %s' % [watch('last_success_timestamp_seconds'), watch('interval_seconds')],
            decimals=1, steps=lib.above('orange', 3)
          ),
          lib.label('namespace', 'Namespace'),
          lib.label('cluster', 'Cluster'),
        ],
        ['Unfit', 'Suppressed', 'Unknown'],
        'No TrafficWatch', w=12, h=7
      ),
      lib.table(
        'NetworkProbers',
        'NetworkProbers with pods whose agent cannot start, and pods without an agent for a reason that you can fix. If namespaces are paused, injection stopped there because agents fail; look at the failing pods.',
        [
          lib.label('prober', 'NetworkProber', [
            lib.to('networkprober', 'Paths of ${__value.text}', 'var-prober=${__value.text}'),
          ]),
          lib.value('Failing', pods('failing'), steps=lib.above('red')),
          lib.value('Without agent', prober('sum', lib.max(
            'namespace, name, reason', 'injector_uncovered_pods',
            'reason=~"AgentFailing|AgentRefused|CreatedBefore|PortTaken|Stripped"'
          )), steps=lib.above('orange')),
          lib.value('Paused namespaces', prober('max', lib.max(
            'namespace, name', 'networkprober_paused_namespaces'
          )), steps=lib.above('orange')),
          lib.value('Pods', pods('selected')),
          lib.label('cluster', 'Cluster'),
        ],
        ['Failing', 'Without agent'],
        'No NetworkProber', w=12, h=7
      ),
    ]),
    lib.row('Disruptions', folded=false, panels=[
      lib.lines(
        'Object that disrupts each zone',
        'The object that evicts pods or changes a route reflector in each zone now; others wait for it. If one object holds a zone for hours, its work does not end: look at its status.',
        'none',
        [['{{zone}} {{kind}} {{name}}', lib.max('zone, kind, name', 'disruption_in_progress')]],
        w=12, h=7, empty='No disruption'
      ),
      lib.lines(
        'Disruptions by result',
        'Disruptions in the last 5 minutes: started, deferred because another object held the zone, or urgent, which do not wait. If most are deferred, look at the object that holds the zone.',
        'none',
        [['{{kind}} {{result}}', lib.increase('kind, result', 'traffic_operator_disruptions_total')]],
        w=12, h=7, empty='No disruptive acts'
      ),
    ]),
  ]
)
