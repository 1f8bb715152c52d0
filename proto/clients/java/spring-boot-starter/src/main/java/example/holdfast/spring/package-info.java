/** Holdfast for Spring Boot: a client as a bean. */
package example.holdfast.spring;
