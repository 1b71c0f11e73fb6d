package generate

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Changed is a pod after one more thing has happened to it, as kubelets and controllers let things happen in turn: it becomes unready or ready
// again, a container is started again, an annotation is set.
func Changed(pod *corev1.Pod, number int) *corev1.Pod {
	r := newRandom(2, uint64(number))
	now := metav1.NewTime(r.moment())
	pod = pod.DeepCopy()
	containers := pod.Status.ContainerStatuses
	switch {
	case number%3 == 0 && len(containers) > 0:
		container := &containers[r.IntN(len(containers))]
		container.Ready = !container.Ready
		for i := range pod.Status.Conditions {
			condition := &pod.Status.Conditions[i]
			if condition.Type == corev1.PodReady || condition.Type == corev1.ContainersReady {
				condition.Status, condition.LastTransitionTime = corev1.ConditionTrue, now
				if !container.Ready {
					condition.Status = corev1.ConditionFalse
					condition.Reason, condition.Message = "ContainersNotReady", "containers with unready status: ["+container.Name+"]"
				}
			}
		}
	case number%3 == 1 && len(containers) > 0:
		container := &containers[r.IntN(len(containers))]
		container.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 1, Reason: "Error", StartedAt: now, FinishedAt: now, ContainerID: container.ContainerID}}
		container.RestartCount++
		container.ContainerID = "containerd://" + r.hex(32)
		container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	default:
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "bench.example.com/change", r.uid())
	}
	for i := range pod.ManagedFields {
		if pod.ManagedFields[i].Subresource == "status" || i == len(pod.ManagedFields)-1 {
			pod.ManagedFields[i].Time = &now
		}
	}
	return pod
}
