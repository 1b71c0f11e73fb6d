package generate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NoisyConfigMap holds so many random bytes and next to nothing else.
func (p *Pods) NoisyConfigMap(number, bytes int) *corev1.ConfigMap {
	r := newRandom(p.seed^0x4015e, uint64(number))
	return &corev1.ConfigMap{ObjectMeta: r.bareMeta("settings", number), BinaryData: map[string][]byte{"noise": r.bytes(bytes)}}
}

// NoisySecret holds so many random bytes and next to nothing else.
func (p *Pods) NoisySecret(number, bytes int) *corev1.Secret {
	r := newRandom(p.seed^0x5ec4e7, uint64(number))
	return &corev1.Secret{ObjectMeta: r.bareMeta("credentials", number), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"noise": r.bytes(bytes)}}
}

// bareMeta is metadata without labels; names are in the order of the numbers.
func (r random) bareMeta(what string, number int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-%08d", what, number), Namespace: "default", UID: types.UID(r.uid()), CreationTimestamp: metav1.NewTime(r.moment()),
	}
}

func (r random) bytes(count int) []byte {
	raw := make([]byte, 0, count+8)
	for len(raw) < count {
		word := r.Uint64()
		for range 8 {
			raw = append(raw, byte(word))
			word >>= 8
		}
	}
	return raw[:count]
}
