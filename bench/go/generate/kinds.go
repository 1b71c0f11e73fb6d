package generate

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ConfigMap is a few settings, sometimes a whole file.
func (p *Pods) ConfigMap(number int) *corev1.ConfigMap {
	r := newRandom(p.seed^0xc0f1, uint64(number))
	t := p.templates[r.IntN(len(p.templates))]
	data := map[string]string{}
	for range r.between(1, 12) {
		data[r.pick(words)+"."+r.pick(words)] = r.pick(words) + "-" + r.hex(4)
	}
	if r.chance(30) {
		data["application.yaml"] = r.sentence(r.between(500, 4000))
	}
	return &corev1.ConfigMap{ObjectMeta: t.meta(r, "config", number), Data: data}
}

// Secret is what compresses least: random bytes.
func (p *Pods) Secret(number int) *corev1.Secret {
	r := newRandom(p.seed^0x5ec2, uint64(number))
	t := p.templates[r.IntN(len(p.templates))]
	return &corev1.Secret{
		ObjectMeta: t.meta(r, "credentials", number), Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{"username": []byte(r.pick(words)), "password": []byte(r.hex(16)), "key.pem": []byte(r.hex(r.between(200, 900)))},
	}
}

// Node is a large object with a long list of images.
func (p *Pods) Node(number int) *corev1.Node {
	r := newRandom(p.seed^0x40de, uint64(number))
	name := fmt.Sprintf("node-%04d.example.com", number)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name,
			"topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", r.IntN(3)), "node.example.com/pool": r.pick(words),
		}},
		Spec: corev1.NodeSpec{PodCIDR: r.ip(64) + "/32", ProviderID: "example:///" + r.hex(8)},
	}
	capacity := corev1.ResourceList{
		"cpu": resource.MustParse("32"), "memory": resource.MustParse(fmt.Sprintf("%dKi", 131000000+r.IntN(1000000))), "pods": resource.MustParse("110"),
	}
	node.Status = corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Addresses: []corev1.NodeAddress{{Type: "InternalIP", Address: r.ip(0)}, {Type: "Hostname", Address: name}},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: r.hex(16), SystemUUID: r.uid(), BootID: r.uid(), KernelVersion: "6.12.0", OSImage: "Linux", OperatingSystem: "linux",
			Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.1.0", KubeletVersion: "v1.37.1",
		},
	}
	for _, kind := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: "False", Reason: "Kubelet" + string(kind), Message: "the kubelet has told of " + string(kind),
			LastHeartbeatTime: metav1.NewTime(r.moment()), LastTransitionTime: metav1.NewTime(r.moment()),
		})
	}
	for range r.between(10, 40) {
		t := p.templates[r.IntN(len(p.templates))]
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{t.imageIDs["main"], t.spec.Containers[0].Image}, SizeBytes: int64(r.between(10_000_000, 900_000_000)),
		})
	}
	return node
}

// Deployment is a workload's template and its status.
func (p *Pods) Deployment(number int) *appsv1.Deployment {
	r := newRandom(p.seed^0xde91, uint64(number))
	t := newTemplate(p.seed^0xde91, uint64(number), Namespaces)
	meta := t.meta(r, "deployment", number)
	labels := map[string]string{"app.kubernetes.io/name": t.name}
	return &appsv1.Deployment{
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr(int32(r.between(1, 20))), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: t.labels, Annotations: t.annotations}, Spec: t.spec},
		},
	}
}

// Event is a small object of which clusters have many.
func (p *Pods) Event(number int) *corev1.Event {
	r := newRandom(p.seed^0xe4e7, uint64(number))
	pod := p.Pod(number)
	reason := r.pick([]string{"Pulled", "Created", "Started", "Scheduled", "BackOff", "Unhealthy", "Killing"})
	when := metav1.NewTime(r.moment())
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: pod.Name + "." + r.hex(8), Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		Reason:         reason, Message: reason + ": " + r.sentence(r.between(20, 160)), Type: "Normal",
		Source: corev1.EventSource{Component: "kubelet", Host: pod.Spec.NodeName}, Count: int32(r.between(1, 50)), FirstTimestamp: when, LastTimestamp: when,
	}
}

// Widget is an object of a custom kind.
func (p *Pods) Widget(number int) *unstructured.Unstructured {
	r := newRandom(p.seed^0x31d9, uint64(number))
	t := p.templates[r.IntN(len(p.templates))]
	meta := t.meta(r, "widget", number)
	rules := []any{}
	for range r.between(1, 8) {
		rules = append(rules, map[string]any{"host": r.pick(words) + ".example.com", "path": "/" + r.pick(words), "weight": int64(r.IntN(100)), "backend": t.name})
	}
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "bench.example.com/v1", "kind": "Widget",
		"spec": map[string]any{"owner": r.pick(words), "replicas": int64(r.IntN(20)), "rules": rules, "note": r.sentence(r.between(10, 300))},
	}}
	widget.SetName(meta.Name)
	widget.SetNamespace(meta.Namespace)
	widget.SetLabels(meta.Labels)
	return widget
}

func (t *template) meta(r random, what string, number int) metav1.ObjectMeta {
	labels := map[string]string{"app.kubernetes.io/name": t.name, "app.kubernetes.io/managed-by": r.pick([]string{"helm", "argocd", "flux"})}
	return metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", t.name, what, number), Namespace: t.namespace, Labels: labels}
}
