package generate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// template is one workload: what all its pods have in common.
type template struct {
	name, namespace   string
	owner, ownerUID   string
	labels            map[string]string
	annotations       map[string]string
	spec              corev1.PodSpec
	imageIDs          map[string]string
	ownerKind, ownerV string
}

func newTemplate(seed, number uint64, namespaces int) *template {
	r := newRandom(seed^0x7e3b, number)
	name := fmt.Sprintf("%s-%s-%d", r.pick(words), r.pick(words), number)
	t := &template{
		name:        name,
		namespace:   Namespace(r.IntN(namespaces)),
		ownerUID:    r.uid(),
		annotations: map[string]string{},
		imageIDs:    map[string]string{},
		ownerKind:   "ReplicaSet", ownerV: "apps/v1",
	}
	hash := r.suffix(10)
	t.owner = name + "-" + hash
	t.labels = map[string]string{
		"app.kubernetes.io/name":     name,
		"app.kubernetes.io/instance": name + "-" + r.pick([]string{"prod", "stage", "canary", "blue"}),
		"pod-template-hash":          hash,
	}
	for range r.between(0, 5) {
		t.labels[r.pick(words)+".example.com/"+r.pick(words)] = r.pick(words)
	}
	switch {
	case r.chance(30):
	case r.chance(60):
		t.annotations["checksum/config"] = r.hex(32)
		t.annotations["prometheus.io/scrape"] = "true"
		t.annotations["prometheus.io/port"] = fmt.Sprint(r.between(8000, 9999))
	default:
		t.annotations[r.pick(words)+".example.com/description"] = r.sentence(r.between(200, 1700))
		t.annotations["checksum/config"] = r.hex(32)
	}
	t.spec = t.podSpec(r)
	return t
}

func (t *template) podSpec(r random) corev1.PodSpec {
	grace, seconds, no, yes := int64(r.pickNumber(30, 60)), int64(300), false, true
	spec := corev1.PodSpec{
		ServiceAccountName:            t.name,
		TerminationGracePeriodSeconds: &grace,
		AutomountServiceAccountToken:  &no,
		EnableServiceLinks:            &no,
		SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: &yes, FSGroup: ptr(int64(r.between(1000, 65000)))},
		Tolerations: []corev1.Toleration{
			{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &seconds},
			{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &seconds},
		},
		Volumes: []corev1.Volume{
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: t.name + "-config"}}}},
			{Name: "credentials", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: t.name + "-credentials"}}},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: "ScheduleAnyway",
			LabelSelector: selector("app.kubernetes.io/name", t.name),
		}},
	}
	if r.chance(40) {
		spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
				TopologyKey: "kubernetes.io/hostname", LabelSelector: selector("app.kubernetes.io/name", t.name)}}},
		}}
	}
	if r.chance(30) {
		spec.NodeSelector = map[string]string{"node.example.com/pool": r.pick(words)}
	}
	names := []string{"main", "proxy", "logs", "metrics", "agent"}
	// One to five, mostly few.
	count := 1 + min(r.IntN(5), r.IntN(5))
	for _, name := range names[:count] {
		spec.Containers = append(spec.Containers, t.container(r, name, r.between(4, 26)))
	}
	if r.chance(35) {
		spec.InitContainers = []corev1.Container{t.container(r, "init", r.between(1, 6))}
	}
	return spec
}

func (t *template) container(r random, name string, variables int) corev1.Container {
	no, yes := false, true
	image := fmt.Sprintf("registry.example.com/%s/%s-%s:v%d.%d.%d", r.pick(words), t.name, name, r.IntN(5), r.IntN(30), r.IntN(20))
	t.imageIDs[name] = "registry.example.com/" + t.name + "-" + name + "@sha256:" + r.hex(32)
	c := corev1.Container{
		Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		Resources: corev1.ResourceRequirements{
			Requests: quantities(r.between(10, 500), r.between(32, 1024)),
			Limits:   quantities(r.between(500, 4000), r.between(1024, 8192)),
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "tmp", MountPath: "/tmp"},
			{Name: "config", MountPath: "/etc/" + t.name, ReadOnly: true},
			{Name: "credentials", MountPath: "/var/run/credentials", ReadOnly: true},
		},
	}
	for range r.between(0, 6) {
		c.Args = append(c.Args, "--"+r.pick(words)+"-"+r.pick(words)+"="+r.pick(words))
	}
	seen := map[string]bool{}
	for range variables {
		key := strings.ToUpper(r.pick(words) + "_" + r.pick(words))
		if seen[key] {
			continue
		}
		seen[key] = true
		c.Env = append(c.Env, variable(r, key, t.name))
	}
	if name != "init" {
		port := int32(r.between(3000, 9900))
		c.Ports = []corev1.ContainerPort{{Name: name + "-http", ContainerPort: port, Protocol: corev1.ProtocolTCP}}
		probe := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/" + r.pick(words) + "/ready", Port: intstr.FromString(name + "-http"), Scheme: "HTTP"}}
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: probe, PeriodSeconds: 10, TimeoutSeconds: 2, SuccessThreshold: 1, FailureThreshold: 3}
		c.LivenessProbe = &corev1.Probe{ProbeHandler: probe, PeriodSeconds: 20, TimeoutSeconds: 5, SuccessThreshold: 1, FailureThreshold: 5, InitialDelaySeconds: 15}
	}
	return c
}

func variable(r random, key, workload string) corev1.EnvVar {
	switch r.IntN(5) {
	case 0:
		return corev1.EnvVar{Name: key, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: workload + "-credentials"}, Key: strings.ToLower(key)}}}
	case 1:
		return corev1.EnvVar{Name: key, Value: fmt.Sprintf("http://%s.%s.svc.cluster.local:%d/%s", r.pick(words), r.pick(words), r.between(80, 9900), r.pick(words))}
	case 2:
		return corev1.EnvVar{Name: key, Value: fmt.Sprint(r.IntN(100000))}
	default:
		return corev1.EnvVar{Name: key, Value: r.pick(words) + "-" + r.hex(4)}
	}
}

func quantities(milliCPU, mebibytes int) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(fmt.Sprintf("%dm", milliCPU)),
		corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dMi", mebibytes)),
	}
}
