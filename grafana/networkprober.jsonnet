local lib = import 'lib.libsonnet';

// What agents measure, and what is recorded of it.
local agents = 'job=~"$prober"';
local to = agents + ', dst_node=~"$node"';
local on = agents + ', node=~"$node"';
local recorded = 'prober=~"$prober"';
local between = recorded + ', src_node=~"$node", dst_node=~"$node"';
local pair(name) = lib.series('netprober:pair_' + name, between);
local path(expr) = 'max by (cluster, src_node, dst_node) (%s)' % expr;
local node(name) =
  'max by (cluster, prober, node) (%s)' % lib.series('netprober:node_' + name, recorded + ', node=~"$node"');
local perNode(name) = 'max by (cluster, node) (%s)' % lib.series('netprober_' + name, on);
// What the operator knows about a prober.
local prober(name, by) =
  lib.max('namespace, name' + by, name, 'namespace=~"$namespace", name=~"$name"');

local rttSteps = [['green', null], ['orange', 0.01], ['red', lib.rttLimit]];
local lossSteps = [['green', null], ['orange', 0.01], ['red', lib.lossLimit]];
// Sources and destinations with the highest means: a matrix of all nodes would be too large.
local square(series) =
  'max by (src_node, dst_node) (%s) and on (src_node) topk($top, avg by (src_node) (%s)) and on (dst_node) topk($top, avg by (dst_node) (%s))'
  % [series, series, series];

local loss = path(pair('loss:ratio1m'));
local rtt = path(pair('rtt_seconds:p99_1m'));
local large = path(pair('large_loss:ratio1m'));
local changes =
  path('changes(%s)' % lib.series('netprober_udp_hops', agents + ', src_node=~"$node", dst_node=~"$node"', '[15m]'));
local worstPaths =
  '(%s)' % std.join(' or ', ['topk(10, %s)' % expr for expr in [rtt, loss + ' > 0', large + ' > 0', changes + ' > 0']]);
local ofWorst(expr) = '%s and on (cluster, src_node, dst_node) %s' % [expr, worstPaths];

local target(how, above) =
  '%s by (cluster, target, phase) (%s%s)' % [how, lib.series('netprober:target_bad:ratio5m', recorded), above];
local took(part) =
  'sum by (cluster, target, phase) (increase(%s))'
  % lib.series('netprober_target_phase_seconds_' + part, agents, '[5m]');
local phases = '%s / (%s > 0)' % [took('sum'), took('count')];

// The job of the agents has namespace and name of the prober, which no one needs to choose as well.
local part(name, regex) =
  lib.choice(name, name, lib.series('netprober_peers', agents), 'job', lib.one {
    hide: 2,
    regex: regex,
    skipUrlSync: true,
  });

lib.dashboard(
  'networkprober',
  'Which nodes and paths lose or delay packets, and by how much; below, paths, probes and agents.',
  'netprober_peers',
  [
    lib.choice('prober', 'NetworkProber', lib.series('netprober_peers'), 'job', lib.one),
    part('namespace', '/^([^/]+)/'),
    part('name', '/([^/]+)$/'),
    lib.choice('node', 'Node', lib.series('netprober_probes_total', agents), 'dst_node'),
    lib.topOf('node'),
  ],
  [
    lib.row('Nodes and paths now', folded=false, panels=[
      lib.blamed(recorded + ', node=~"$node"', '$top', [
        lib.to('trafficwatch', 'Load of ${__value.text}', 'var-node=${__value.text}'),
      ], w=11, h=10),
      lib.table(
        'Worst paths',
        'Paths with the highest round-trip time, loss, loss of large packets, or most changes of the number of routers. If only large packets are lost, an MTU on the path is too large; if a path changes, look at the routes.',
        [
          lib.label('src_node', 'From'),
          lib.label('dst_node', 'To'),
          lib.value('Loss', ofWorst(loss), 'percentunit', 1, lib.above('red', lib.lossLimit)),
          lib.value('p99', ofWorst(rtt), 's', null, lib.above('red', lib.rttLimit)),
          lib.value('Large packets lost (limit 90 %)', ofWorst(large), 'percentunit', 0, lib.above('red', 0.9)),
          lib.value('Changes in 15 min (limit 4)', ofWorst(changes), null, 0, lib.above('red', 4)),
          lib.label('cluster', 'Cluster'),
        ],
        ['Loss', 'Large packets lost (limit 90 %)', 'p99'],
        'No path is measured', w=13, h=10
      ),
      lib.stat(
        'Paths measured',
        'Ordered pairs of nodes with enough probes in the last five minutes. A missing pair is not probed, which says nothing about its loss; look at the agents.',
        'none',
        [['paths', 'count(%s)' % lib.series('netprober:pair_loss:ratio5m', recorded)]],
        w=11, h=3
      ),
      lib.alerts(
        'Prober alerts',
        'Firing alerts of the chosen prober: critical ones need action now, warnings soon. Each alert has a runbook.',
        'NetworkProber.*', ', prober=~"$prober|"', w=13, h=3
      ),
      lib.lines(
        'Loss by node',
        'Loss on more than half of the paths to a node, or from it, whichever is worse. Above 5 % the node is to blame, not its peers; look at its interface and its host.',
        'percentunit',
        [['{{cluster}} {{prober}} {{node}}', lib.top(node('loss:ratio5m'))]],
        w=12, h=9, limit=lib.lossLimit
      ),
      lib.lines(
        'Round-trip time by node',
        'The 99th percentile on more than half of the paths to a node, or from it, whichever is worse. Above 100 ms, look at the load of its links and its CPU.',
        's',
        [['{{cluster}} {{prober}} {{node}}', lib.top(node('rtt_seconds:p99_5m'))]],
        w=12, h=9
      ),
    ]),
    lib.row('Paths', [
      lib.matrix(
        'p99 from node to node',
        'The 99th percentile of the round-trip time over five minutes, from the node of a row to that of a column. A red row or column is a node, a single red cell is a path; empty cells are not probed.',
        square(pair('rtt_seconds:p99_5m')), 'src_node', 'dst_node', 's', rttSteps
      ),
      lib.matrix(
        'Loss from node to node',
        'The share of failed probes over five minutes, from the node of a row to that of a column. A red row or column is a node, a single red cell is a path; empty cells are not probed.',
        square(pair('loss:ratio5m')), 'src_node', 'dst_node', 'percentunit', lossSteps
      ),
      lib.matrix(
        'p99 from zone to zone',
        'The median over all paths from the zone of a row to that of a column. A red cell is a slow link between zones.',
        'quantile by (src_zone, dst_zone) (0.5, %s)' % lib.series('netprober:pair_rtt_seconds:p99_5m', recorded),
        'src_zone', 'dst_zone', 's', rttSteps
      ),
      lib.matrix(
        'Loss from zone to zone',
        'The mean over all paths from the zone of a row to that of a column. A red cell is a link between zones that loses packets.',
        'avg by (src_zone, dst_zone) (%s)' % lib.series('netprober:pair_loss:ratio5m', recorded),
        'src_zone', 'dst_zone', 'percentunit', lossSteps
      ),
      lib.table(
        'Traces of lost paths',
        'Paths that had lost most of their probes for a minute within the last hour. Packets reach every hop that is named; only "lost" and "undeliverable" say that they get no further than the last.',
        [
          lib.label('src_node', 'From'),
          lib.label('dst_node', 'To'),
          lib.label('dst_ip', 'Address'),
          lib.label('result', 'Result'),
          lib.label('hops', 'Hops that answer'),
          lib.label('silent_hop', 'First silent hop'),
          lib.label('cluster', 'Cluster'),
          lib.value(
            'Traced',
            'topk($top, max by (cluster, src_node, dst_node, dst_ip, result, hops, silent_hop) (%s) * 1000)' %
            lib.series('netprober_trace_timestamp_seconds', agents + ', src_node=~"$node"'),
            'dateTimeFromNow'
          ),
        ],
        ['Traced'],
        'No path is lost'
      ),
    ]),
    lib.row('Probes', [
      lib.lines(
        'Round-trip time by protocol',
        'Median and 99th percentile of answered probes to the chosen nodes. If only one protocol is slow, look at what handles it on the way; HTTP includes the time of the peer.',
        's',
        [
          ['%s {{protocol}}' % q[0], lib.quantile(q[1], 'protocol, ', 'netprober_rtt_seconds', to)]
          for q in [['p50', '0.5'], ['p99', '0.99']]
        ]
      ),
      lib.lines(
        "Kernel's TCP round-trip time",
        'The round-trip time that the kernel measured in the last TCP probe, the largest to each node. If it is low while probes are slow, the agents lack CPU time and the network is fine.',
        's',
        [[
          '{{cluster}} {{dst_node}}',
          lib.top('max by (cluster, dst_node) (%s)' % lib.series('netprober_tcp_srtt_seconds', to)),
        ]],
        empty='No TCP probes'
      ),
      lib.lines(
        'Failed probes by reason',
        'Failed probes to the chosen nodes, by protocol and reason. A timeout is loss on the way; refused and reset are the answers of a host without an agent.',
        'ops',
        [['{{protocol}} {{reason}}', lib.orNone(lib.rate('protocol, reason', 'netprober_failures_total', to), 'reason')]]
      ),
      lib.lines(
        'Lost large packets',
        'The share of large packets that paths lose while short ones arrive. At 100 % an MTU on the path is too large.',
        'percentunit',
        [[
          '{{cluster}} {{src_node}} → {{dst_node}}',
          lib.top(path(lib.series('netprober:pair_large_loss:ratio1m', recorded))),
        ]],
        empty='No large packets'
      ),
      lib.lines(
        'Large packets that arrive',
        'Length of the last large packet that arrived, on the path where it is shortest. If it drops, a tunnel or an interface on the way has a smaller MTU than before.',
        'bytes',
        [['{{cluster}}', 'min by (cluster) (%s)' % lib.series('netprober_udp_packet_bytes', to)]],
        empty='No large packets'
      ),
      lib.lines(
        'Changes of paths',
        'How often the number of routers on a path has changed within 15 minutes. From 4 on a route flaps; look at the routers between the two nodes.',
        'none',
        [[
          '{{cluster}} {{src_node}} ← {{dst_node}}',
          lib.top(path('changes(%s)' % lib.series('netprober_udp_hops', to, '[15m]'))),
        ]],
        empty='No UDP probes'
      ),
    ]),
    lib.row('Targets', [
      lib.table(
        'Targets by phase',
        'Phases of the probes of spec.targets over five minutes. Bad are nodes from which more than 20 % of the attempts fail or take longer than 1 s. If one phase is bad from all nodes, look at what serves it (DNS, the Service, its certificate, the server); if it is bad from one node, look at that node.',
        [
          lib.label('target', 'Target'),
          lib.label('phase', 'Phase'),
          lib.value('Failed or slow', target('max', ''), 'percentunit', 0, lib.above('red', 0.2)),
          lib.value('Nodes bad', target('count', ' > 0.2'), null, 0, lib.above('red')),
          lib.value('Nodes', target('count', ''), null, 0),
          lib.value('Mean', phases, 's'),
          lib.label('cluster', 'Cluster'),
        ],
        ['Failed or slow', 'Mean'],
        'No targets', w=12
      ),
      lib.lines(
        'Failed probes of targets',
        'Failed probes by target, phase and reason. not_found and server_failure are answers of the DNS server, refused is the answer of a Service without endpoints, certificate that of a CA that agents do not know.',
        'ops',
        [[
          '{{cluster}} {{target}} {{phase}} {{reason}}',
          lib.top(lib.rate('cluster, target, phase, reason', 'netprober_target_failures_total', agents)),
        ]],
        w=12, empty='No failed probes of targets'
      ),
    ]),
    lib.row('Agents', [
      lib.lines(
        'Pods by state',
        'Pods that the prober selects, those with an agent, and those whose agent fails or needs a restart; and namespaces in which injection pauses. If pods fail, look at the events of one of them.',
        'none',
        [
          ['{{cluster}} {{namespace}}/{{name}} {{state}}', prober('networkprober_pods', ', state')],
          ['{{cluster}} {{namespace}}/{{name}} paused namespaces', prober('networkprober_paused_namespaces', '')],
        ]
      ),
      lib.lines(
        'Pods without agent by reason',
        'Selected pods without a working agent. You can fix CreatedBefore, Stripped, PortTaken, AgentFailing and AgentRefused; NotCalled points to the webhook.',
        'none',
        [['{{cluster}} {{namespace}}/{{name}} {{reason}}', prober('injector_uncovered_pods', ', reason')]],
        empty='No pod without an agent'
      ),
      lib.lines(
        'Peers',
        'Peers that an agent probes, and peers that probed it in the last three periods: least and most over all agents. If fewer probe it than it probes, nothing arrives on some paths to it.',
        'none',
        [
          [
            '%s, %s' % [what[0], end[0]],
            '%s(%s)' % [end[1], lib.series(what[1], on)],
          ]
          for what in [['probes', 'netprober_peers'], ['probed by', 'netprober_incoming_peers']]
          for end in [['least', 'min'], ['most', 'max']]
        ]
      ),
      lib.lines(
        'Scheduling delay',
        'How much later than planned probes are sent: the 99th percentile on each node. If it is high, the agents lack CPU time, and round-trip times are not to be trusted.',
        's',
        [['{{cluster}} {{node}}', lib.top(lib.quantile('0.99', 'cluster, node, ', 'netprober_scheduling_delay_seconds', on))]],
        w=6
      ),
      lib.lines(
        'Skipped probes',
        'Probes that were not sent: starved (no CPU time), busy (the previous one had not ended), local (the host has no descriptors, ports or memory). None of them counts as loss; look at the host.',
        'ops',
        [['{{cluster}} {{node}} {{reason}}', lib.top(lib.rate('cluster, node, reason', 'netprober_skipped_probes_total', on))]],
        w=6, empty='No skipped probes'
      ),
      lib.lines(
        'Age of the list of peers',
        'The oldest list of peers in use on each node. After ten minutes without renewal an agent stops probing; look at the requests for lists on the dashboard Operator.',
        's',
        [['{{cluster}} {{node}}', lib.top(perNode('pinglist_age_seconds'))]],
        w=6, limit=600
      ),
      lib.lines(
        "Agents' open files",
        'The most file descriptors that an agent on each node has open. At the limit of the container, probes are skipped (local).',
        'none',
        [['{{cluster}} {{node}}', lib.top(perNode('process_open_fds'))]],
        w=6
      ),
    ]),
  ]
)
