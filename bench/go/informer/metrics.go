package informer

import (
	"math"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
)

// kept is a provider of metrics that keeps them all and is cheaper than Prometheus': without one, client-go measures nothing.
type kept struct{}

type number struct{ value atomic.Int64 }

type setting struct{ bits atomic.Uint64 }

// durations has the buckets that Kubernetes gives to the work queue: powers of ten from 10 ns to 10 s. The queue holds its lock meanwhile.
type durations struct {
	buckets [11]uint64
	sum     float64
}

func (n *number) Inc() { n.value.Add(1) }
func (n *number) Dec() { n.value.Add(-1) }

func (s *setting) Set(value float64) { s.bits.Store(math.Float64bits(value)) }

func (d *durations) Observe(seconds float64) {
	bucket, bound := 0, 1e-8
	for bucket < len(d.buckets)-1 && seconds > bound {
		bucket, bound = bucket+1, bound*10
	}
	d.buckets[bucket]++
	d.sum += seconds
}

func (*kept) NewDepthMetric(string) workqueue.GaugeMetric            { return &number{} }
func (*kept) NewAddsMetric(string) workqueue.CounterMetric           { return &number{} }
func (*kept) NewRetriesMetric(string) workqueue.CounterMetric        { return &number{} }
func (*kept) NewLatencyMetric(string) workqueue.HistogramMetric      { return &durations{} }
func (*kept) NewWorkDurationMetric(string) workqueue.HistogramMetric { return &durations{} }
func (*kept) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return &setting{}
}
func (*kept) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return &setting{}
}
