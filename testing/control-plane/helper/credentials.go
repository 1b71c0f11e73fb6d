package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Instances live for minutes; a year covers even one that is forgotten.
const validFor = 365 * 24 * time.Hour

// writeCredentials makes what one instance needs to be trusted: a CA of its own, so that no instance's certificate is good
// for another, and a random token, so that no other user of the machine can guess it.
func writeCredentials(dir string) error {
	caKey, err := writeKey(dir, "ca.key")
	if err != nil {
		return err
	}
	ca := certificate("kube-informer test CA")
	ca.IsCA = true
	ca.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	if err := writeCertificate(dir, "ca.crt", ca, ca, caKey, caKey); err != nil {
		return err
	}

	serverKey, err := writeKey(dir, "apiserver.key")
	if err != nil {
		return err
	}
	server := certificate("kube-apiserver")
	server.KeyUsage = x509.KeyUsageDigitalSignature
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if err := writeCertificate(dir, "apiserver.crt", server, ca, serverKey, caKey); err != nil {
		return err
	}

	if _, err := writeKey(dir, "service-account.key"); err != nil {
		return err
	}
	return write(dir, "token", []byte(rand.Text()))
}

func certificate(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour), // a client's clock may be a little behind
		NotAfter:              now.Add(validFor),
		BasicConstraintsValid: true,
	}
}

func writeCertificate(dir, name string, cert, issuer *x509.Certificate, key, issuerKey *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, cert, issuer, &key.PublicKey, issuerKey)
	if err != nil {
		return fmt.Errorf("signing %s: %w", name, err)
	}
	return write(dir, name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func writeKey(dir, name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making %s: %w", name, err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", name, err)
	}
	return key, write(dir, name, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func write(dir, name string, content []byte) error {
	return os.WriteFile(filepath.Join(dir, name), content, 0o600)
}
