package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// One try; the script decides how often.
const requestTimeout = 2 * time.Second

// get succeeds if the URL answers 200. With a CA file only that CA is trusted.
func get(url, caFile, tokenFile string) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// A proxy for the outside world has no business on loopback.
	transport := &http.Transport{Proxy: nil}
	if caFile != "" {
		ca, err := os.ReadFile(caFile)
		if err != nil {
			return err
		}
		token, err := os.ReadFile(tokenFile)
		if err != nil {
			return err
		}
		trusted := x509.NewCertPool()
		if !trusted.AppendCertsFromPEM(ca) {
			return fmt.Errorf("%s holds no certificate", caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: trusted}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	client := &http.Client{Timeout: requestTimeout, Transport: transport}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, response.Status)
	}
	return nil
}
