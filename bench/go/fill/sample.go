package fill

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Sample writes up to so many pods, strided over all of them, as protobuf without managedFields: each after its length, and before that its
// length with them.
func Sample(ctx context.Context, config *rest.Config, count int, to io.Writer) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(to)
	stride := max(1, len(list.Items)/count)
	for i := 0; i < len(list.Items); i += stride {
		pod := &list.Items[i]
		whole := pod.Size()
		pod.ManagedFields = nil
		raw, err := pod.Marshal()
		if err != nil {
			return err
		}
		header := binary.LittleEndian.AppendUint32(nil, uint32(whole))
		header = binary.LittleEndian.AppendUint32(header, uint32(len(raw)))
		if _, err := out.Write(append(header, raw...)); err != nil {
			return err
		}
	}
	return out.Flush()
}
