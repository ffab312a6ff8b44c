package com.example.users;

import java.util.Optional;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

@Service
public class UserService {
    private final UserRepository users;

    public UserService(UserRepository users) {
        this.users = users;
    }

    @Cacheable(cacheNames = "users", sync = true)
    public Optional<User> find(long id) {
        return users.findById(id);
    }

    @Transactional
    public void rename(long id, String name) {
        users.findById(id).ifPresent(user -> user.setName(name));
    }

    public User add(String name) {
        return users.save(new User(name));
    }
}
