package generate

import (
	"fmt"
	"sort"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Namespaces is how many there are.
	Namespaces = 80
	templates  = 400
	nodes      = 500
)

// Pods makes pods: number n is always the same for a seed.
type Pods struct {
	seed      uint64
	templates []*template
	// share[i] is the part of all pods that belong to templates 0 to i: a Zipf distribution.
	share []float64
}

// NewPods makes the templates.
func NewPods(seed uint64) *Pods {
	p := &Pods{seed: seed}
	total := 0.0
	for i := range templates {
		p.templates = append(p.templates, newTemplate(seed, uint64(i), Namespaces))
		total += 1 / float64(i+1)
		p.share = append(p.share, total)
	}
	for i := range p.share {
		p.share[i] /= total
	}
	return p
}

// Namespace is the name of a namespace.
func Namespace(number int) string { return fmt.Sprintf("team-%02d", number) }

// Pod makes a pod as it runs: with its status, without managedFields, which are the server's to make.
func (p *Pods) Pod(number int) *corev1.Pod {
	r := newRandom(p.seed, uint64(number))
	t := p.template(r)
	created := metav1.NewTime(r.moment())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: t.owner + "-" + r.suffix(6), GenerateName: t.owner + "-", Namespace: t.namespace,
			UID: types.UID(r.uid()), CreationTimestamp: created,
			Labels: t.labels, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: t.ownerV, Kind: t.ownerKind, Name: t.owner, UID: types.UID(t.ownerUID), Controller: ptr(true), BlockOwnerDeletion: ptr(true)}},
		},
		Spec: *t.spec.DeepCopy(),
	}
	for key, value := range t.annotations {
		pod.Annotations[key] = value
	}
	if r.chance(30) {
		pod.Annotations["network.example.com/assignment"] = fmt.Sprintf(`{"ip":"%s","mac":"%s","node":"%s"}`, r.ip(64), r.hex(6), r.hex(4))
	}
	pod.Spec.NodeName = fmt.Sprintf("node-%04d.example.com", r.IntN(nodes))
	pod.Status = t.status(r, created, pod.Spec)
	return pod
}

// template is the one that a pod is made from: its first random number says which.
func (p *Pods) template(r random) *template {
	return p.templates[sort.SearchFloat64s(p.share, r.Float64())]
}

func (t *template) status(r random, created metav1.Time, spec corev1.PodSpec) corev1.PodStatus {
	started := metav1.NewTime(created.Add(3_000_000_000))
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &created, QOSClass: corev1.PodQOSBurstable}
	status.PodIP, status.HostIP = r.ip(64), r.ip(0)
	status.PodIPs, status.HostIPs = []corev1.PodIP{{IP: status.PodIP}}, []corev1.HostIP{{IP: status.HostIP}}
	for _, kind := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: started})
	}
	for _, container := range spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, t.containerStatus(r, container, started))
	}
	for _, container := range spec.InitContainers {
		done := t.containerStatus(r, container, started)
		done.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "Completed", StartedAt: created, FinishedAt: started, ContainerID: done.ContainerID}}
		done.LastTerminationState = corev1.ContainerState{}
		status.InitContainerStatuses = append(status.InitContainerStatuses, done)
	}
	return status
}

func (t *template) containerStatus(r random, container corev1.Container, started metav1.Time) corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name: container.Name, Image: container.Image, ImageID: t.imageIDs[container.Name],
		ContainerID: "containerd://" + r.hex(32), Ready: true, Started: ptr(true),
		State:              corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		AllocatedResources: container.Resources.Requests, Resources: &container.Resources,
	}
	if r.chance(8) {
		again := metav1.NewTime(started.Add(3600_000_000_000))
		status.RestartCount = int32(r.between(1, 40))
		status.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "OOMKilled", StartedAt: started, FinishedAt: again, ContainerID: "containerd://" + r.hex(32)}}
	}
	return status
}

func selector(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func ptr[T any](value T) *T { return &value }
