module kube-informer.dev/testing/control-plane/helper

go 1.26
