package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Physical compaction of a large store takes seconds; minutes mean that etcd is stuck.
const compactTimeout = 2 * time.Minute

// compact tells etcd, through its JSON gateway, to forget every revision before the current one.
func compact(etcd string) (int64, error) {
	var status struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	answer, err := call(etcd+"/v3/maintenance/status", map[string]any{})
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(answer, &status); err != nil {
		return 0, fmt.Errorf("reading etcd's status: %w", err)
	}
	revision := status.Header.Revision
	_, err = call(etcd+"/v3/kv/compaction", map[string]any{"revision": fmt.Sprint(revision), "physical": true})
	if err != nil && strings.Contains(err.Error(), "has been compacted") {
		err = nil // nothing was written since the last time
	}
	return revision, err
}

func call(url string, body any) ([]byte, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: compactTimeout, Transport: &http.Transport{Proxy: nil}}
	response, err := client.Post(url, "application/json", bytes.NewReader(encoded))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s: %s", url, response.Status, bytes.TrimSpace(answer))
	}
	return answer, nil
}
