package com.example.users;

import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.PutMapping;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;

@RestController
@RequestMapping("/users")
public class UserController {
    private final UserService users;

    public UserController(UserService users) {
        this.users = users;
    }

    @GetMapping("/{id}")
    public ResponseEntity<User> find(@PathVariable long id) {
        return ResponseEntity.of(users.find(id));
    }

    @PutMapping("/{id}")
    public void rename(@PathVariable long id, @RequestParam String name) {
        users.rename(id, name);
    }

    @PostMapping
    public User add(@RequestParam String name) {
        return users.add(name);
    }
}
